import java.io.File;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.HTTPRequest;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.apache.iceberg.rest.RESTResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Iceberg's own REST catalogue over SQLite, at a free port, which it prints. Arguments: a folder. Where the folder has
 * a file "lose-answer", the next change of a table is made, and answered with an error. */
public class RestCatalogue {
  public static void main(String[] arguments) throws Exception {
    String folder = arguments[0];
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.setConf(new Configuration());
    catalog.initialize(
        "rest", Map.of("uri", "jdbc:sqlite:" + folder + "/rest.db", "warehouse", "file:" + folder + "/warehouse"));
    File lose = new File(folder, "lose-answer");
    RESTCatalogAdapter adapter =
        new RESTCatalogAdapter(catalog) {
          @Override
          protected <T extends RESTResponse> T execute(
              HTTPRequest request,
              Class<T> type,
              Consumer<ErrorResponse> onError,
              Consumer<Map<String, String>> headers) {
            T answer = super.execute(request, type, onError, headers);
            if (request.method() == HTTPRequest.HTTPMethod.POST && request.path().contains("/tables/") && lose.delete()) {
              throw new IllegalStateException("the answer is lost");
            }
            return answer;
          }
        };
    Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
    server.setHandler(context);
    server.start();
    System.out.println(((ServerConnector) server.getConnectors()[0]).getLocalPort());
    System.in.read(); // until the one that started it has ended
    System.exit(0);
  }
}
