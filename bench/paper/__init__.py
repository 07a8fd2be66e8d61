"""The experiment of the paper's section 5, on this machine: klog beside Kafka, ActiveMQ and RabbitMQ."""
