"""A consumer group by Kafka's group protocol: members, generations, phases. Pure decisions."""
