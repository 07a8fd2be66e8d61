"""Examples of every command: for ``--help``, the man pages and the reference, which load this only then.

A line is a command line and, behind ``#``, what it is for. ``tests/cli/example_lines.py`` says where each is run.
"""

from __future__ import annotations

from typing import NamedTuple

TEXT = r"""
klog up --brokers 3 -d  # Start ZooKeeper and three brokers in the background.
klog up --secure -d  # A closed cluster: TLS, users, permissions.
klog up --processes 4  # Four brokers under one parent, to use four cores.
klog up --dir /tmp/try --port 19092  # Run one broker on another port, with its data in a folder of your choice.
klog down  # Stop the local cluster.
klog status  # Show how the cluster is: problems, why, and what helps.
klog status -o json  # The same for a program.
klog status --html morning.html  # Write a page for a ticket or a morning.
klog status groups --max-lag 10000  # Report groups that are more than 10,000 messages behind.
klog status brokers --nagios  # One line and the exit codes of a monitoring plugin.
klog lag  # Show the lag of all groups.
klog lag billing --only-lagging  # Show where a group is behind.
klog status clicks-0  # Show why a partition is in trouble, or who leads it.
klog status group billing  # Show why a group does not move.
klog status message clicks-0 3  # Show what became of a message.
klog status denied alice  # Show what a user was denied, and the rule that decides.
klog status throttled alice  # Show for which quota a user's clients had to wait, and how to lift it.
klog events clicks --since @-1h  # Show what happened to a topic within the last hour.
klog events --kind leader-elected -o jsonl  # Elections of the last day, for a program.
klog top  # Watch brokers, topics and groups.
klog metrics 'klog_group_lag*'  # Show the lag of groups as metrics.
klog metrics --broker 1 -o json  # All metrics of a broker.
klog events topic clicks --by alice --since @-1d  # Show what one client did to a topic within the last day.
klog events ACT  # Show one act, with the whole state before and after.
klog undo ACT --dry-run  # Show what taking an act back would change.
klog undo ACT  # Take an act back, after a question.
klog produce clicks messages.txt  # Write each line of a file as a message.
klog produce clicks messages.jsonl -i jsonl  # Write messages with keys, headers and times.
klog produce clicks values.jsonl --schema  # Write lines of JSON as Avro, by the newest schema of clicks-value.
klog produce clicks messages.txt -K : --compression zstd  # Split each line into key and value at the first colon.
klog tail clicks  # Show new messages as they come.
klog tail clicks -n 5 -e  # Show the last five messages and exit.
klog tail clicks -o @-1h -e -f '%o %k %s\n'  # Offset, key and value of the messages of the last hour.
klog tail clicks -o start -e --grep error --output jsonl  # Whole messages whose value matches.
klog tail clicks -n 5 -e --schema  # Avro values as JSON, by the schema id in each.
klog replay clicks orders --from @-1h  # Copy the messages of the last hour into another topic, each once.
klog where clicks 3 -p 0  # Show in which file of which broker a message is.
klog topic create views -p 8 -X retention.ms=7d  # Create a topic with eight partitions that keeps a week.
klog topic create views --like clicks  # Create a topic with the partitions and settings of another.
klog topic create views --like clicks --dry-run  # Show what would be created.
klog topic list  # List topics.
klog topic list 'click*' -o json  # Those that match, for a program.
klog topic describe clicks  # Show leader, replicas and offsets of each partition.
klog topic alter clicks -p 8  # Add partitions, up to eight.
klog topic config clicks  # Show all settings of a topic.
klog topic config clicks retention.ms=3d --dry-run  # Show what a setting would delete.
klog topic config clicks --delete retention.ms  # Go back to the broker's setting.
klog topic delete clicks  # Delete a topic; it can be restored for a day.
klog topic list --deleted  # List deleted topics that can be restored.
klog topic restore deleted  # Bring a deleted topic back.
klog topic describe --under-replicated  # List partitions that lack in-sync replicas.
klog topic describe clicks --at-min-isr  # Those that one more loss would stop.
klog group list  # List groups.
klog group describe billing  # Show the members of a group, and their partitions.
klog lag billing  # Show where a group is, and how far behind.
klog group rewind billing --to @-1h --dry-run  # Show what would be read again.
klog group rewind billing --by -1000 --dry-run  # Show what would be read again from where the group is.
klog group rewind billing --to start --topic clicks  # Read a topic again from its start.
klog group forget billing -t clicks  # Remove what a group has committed in one topic.
klog group delete billing  # Delete a group without members, with its offsets.
klog group peek billing -n 3  # Show the next messages that a group will read.
klog group copy billing accounts  # Begin another group where this one is.
klog offset list clicks  # Show the first and last offsets.
klog offset list clicks --at @-1h  # Show the offsets of a time.
klog offset export billing offsets.json  # Write a group's offsets into a file.
klog offset import offsets.json  # Commit the offsets of a file.
klog broker start --id 1 --dir /var/lib/klog --zookeeper zk1:2181/klog  # Start a broker.
klog broker start --config server.properties  # Start it by Kafka's configuration file.
klog broker start --processes 4 --id 1 --dir /var/lib/klog --zookeeper zk1:2181/klog  # Four brokers, one a core.
klog broker restart --host kafka-1  # Restart the brokers of a host, one at a time.
klog broker restart --all --wait 5m  # Restart every broker, with at most five minutes for each.
klog broker stop 3 --dry-run  # Show how many partitions change their leader or lose it.
klog broker log 1 -n 50  # Show the last lines that a broker of this machine has logged.
klog broker stop 3  # Stop a broker after its leaderships have moved.
klog broker list  # List live brokers.
klog broker describe 1  # Show one broker.
klog broker config 1  # Show a broker's settings, and where they come from.
klog reassign plan --topics clicks --brokers 1 --file plan.json  # Plan moves, and write the plan into a file.
klog reassign execute plan.json --dry-run  # Show what a plan would move.
klog reassign status  # Show moves in progress.
klog reassign cancel  # Take all moves in progress back.
klog security init --dir closed --host broker-1  # Write certificates, settings and the first users of a closed cluster.
klog security users --dir closed  # Write the first users into ZooKeeper, before the first broker starts.
klog security zookeeper --client-config closed/client.properties --dry-run  # Show which znodes are not closed.
klog security add server.properties --dir closed --port 9093  # Put a secured listener beside the open one.
klog security close server.properties --dir closed  # Leave the secured listener alone in a broker's settings.
klog user add carol --generate  # Add a user with a drawn password.
klog user list  # List the users that can log in.
klog user passwd carol --password-file password.txt  # Change a user's password.
klog user delete carol  # Delete a user, after a question.
klog acl add alice read topic:clicks  # Allow a user to read a topic.
klog acl add alice read group:billing  # Allow it to read as a group.
klog acl add 'User:*' write topic:views --prefixed  # Everybody may write to topics whose names begin so.
klog acl add alice all topic:orders --deny --host 10.0.0.7  # Deny a user everything from one address.
klog acl list  # List the ACLs.
klog acl list topic:clicks -o json  # Those that are about a topic, for a program.
klog acl remove alice read topic:clicks  # Remove an ACL.
klog acl check alice write topic:clicks  # Show whether a user may write, and which rule decides.
klog quota set producer_byte_rate=20MB/s --user alice  # All clients of a user together write this much to a broker.
klog quota set consumer_byte_rate=5MB/s request_percentage=20 --default-client  # What each client id may take.
klog quota set connection_creation_rate=20/s --ip 10.0.0.7  # How many connections may come from an address.
klog quota list  # List the quotas.
klog quota list --user alice -o json  # Those of a user, for a program.
klog quota list --applied --user alice --client app  # Which quotas apply to a client id of a user.
klog quota remove producer_byte_rate --user alice  # Remove one quota.
klog topic elect  # Give each partition back to its preferred leader.
klog topic elect clicks-0  # Only this one.
klog zookeeper start --dir /var/lib/zookeeper  # Start a ZooKeeper server.
klog zookeeper start --dir /var/lib/zookeeper --listen 0.0.0.0 --tls closed  # Others reach it by TLS.
klog zookeeper status  # Show whether it answers.
klog zookeeper stop --dir /var/lib/zookeeper  # Stop it.
klog zk tree /brokers/ids  # Show the broker registry.
klog zk tree /brokers/topics  # Show topics, with the leader and the in-sync replicas of each partition.
klog zk tree /consumers/billing  # Show a group's consumers, owners and offsets.
klog zk get /controller  # Show the controller.
klog zk ls /brokers  # List the children of a znode.
klog zk stat /controller  # Show its metadata, and who may change it.
klog zk find /brokers ids  # Find znodes by name.
klog zk tree /brokers/topics -o wide  # Show the data of znodes, for grep or diff.
klog zk create /mine first  # Create a znode.
klog zk set /note new --version 0  # Replace a znode's data unless it was changed meanwhile.
klog zk rm /note --version 0  # Remove a znode.
klog zookeeper rebuild --dir data --dry-run  # Show what could be restored from the disks of brokers.
klog client list -t clicks  # Show who reads and writes a topic.
klog topic verify clicks  # Compare the checksums of all replicas.
klog lost list  # List messages that were cut off somewhere and kept.
klog lost show clicks -p 0 --broker 1  # Show what is kept.
klog lost replay clicks -p 0 --broker 1 --to clicks  # Append it again.
klog mirror --source dc1:9092 --target dc2:9092 --topic 'clicks|orders'  # Copy topics into another cluster.
klog mirror --source dc1:9092 --target dc2:9092 --topic '.*' --rate 20MB/s --once  # Copy what there is, and exit.
klog export run clicks --to /data/clicks  # Write new messages into Parquet files.
klog export run clicks --to /data/clicks --follow --every 1h  # Go on every hour.
klog export status root  # Show how far an export is.
klog export verify root  # Compare an export's files with the topic.
klog export list root  # List its batches.
klog export compact root --dry-run  # Show which small files would become large ones.
klog export gc root --dry-run  # Show what a killed run left.
klog stream run views.py --from 'views:json=country string' --to topic:totals  # Compute a stream that a file describes.
klog stream run views.py --from views --to topic:totals --master yarn --state shared --submit  # On a cluster.
klog stream list  # Show the streams of this machine, and whether they run.
klog stream status totals  # Show a stream's lag, its last batch and its state.
klog stream stop totals  # Let a stream end after its batch; it goes on where it stopped.
klog stream stop --remove totals  # Remove a stream, with its checkpoint.
klog sql 'select partition, count(*) from clicks group by partition'  # Ask a topic by Spark SQL.
klog sql 'select * from clicks where offset >= 4711' -c 10 -o json  # Some of its messages, for a program.
klog export submit clicks --master spark://host:7077 --to s3a://lake/clicks  # Run it on a Spark cluster.
klog schema register clicks-value clicks.avsc  # Register a schema.
klog schema list  # List subjects and versions.
klog schema get clicks-value  # Show the newest schema of a subject.
klog schema check clicks-value clicks.avsc  # Show whether a schema is compatible.
klog schema level FULL --subject clicks-value  # Set the compatibility level of a subject.
klog schema delete clicks-value  # Delete the versions of a subject.
klog schema serve --port 8081  # Serve the Schema Registry API.
klog audit run clicks --no-publish  # Count messages of clients against those in the log.
klog audit report clicks  # Show what was counted.
klog perf produce clicks --messages 1000  # Measure how fast messages are written.
klog perf consume clicks --messages 1000  # Measure how fast they are read.
klog perf latency clicks --messages 20  # Measure the time from producer to consumer.
klog log dump data/clicks-0  # Show the batches of a partition's files, without a broker.
klog log dump data/clicks-0 --messages --from 3 --to 9  # Show messages in files as JSON Lines.
klog log verify data/clicks-0  # Check every batch.
klog log repair data/clicks-0  # Repair a damaged log, after a question.
klog profile add prod -B kafka1:9092 --protected  # Name a cluster, and protect it.
klog profile list  # List profiles.
klog profile show prod  # Show one.
klog profile set prod colour=red  # Change one.
klog profile use prod  # Make it the current one.
klog profile test local  # Connect to it.
klog profile remove prod  # Forget it.
klog shell  # Open the shell.
klog shell -e 'topic list; group list'  # Run commands over one connection.
klog man topic  # Read the manual of a command.
klog completion bash  # Print what completes commands in bash.
"""


class Example(NamedTuple):
    """A command line, and what it is for."""

    line: str
    purpose: str


def examples_of(words: tuple[str, ...]) -> tuple[Example, ...]:
    """Those of a command, such as ``("topic", "create")``."""
    begin = " ".join(("klog", *words))
    lines = [line for line in TEXT.strip().splitlines() if line == begin or line.startswith(f"{begin} ")]
    return tuple(Example(line, purpose) for line, _, purpose in (one.partition("  # ") for one in lines))
