"""One group of consumers by Kafka's group protocol: its members, its generations, its phases. Pure decisions."""
