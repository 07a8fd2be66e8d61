"""Settings of the cluster: topics, replicas, the controller, groups and their offsets."""

from __future__ import annotations

from klog.config.setting import INT_MAX, Setting, Table, at_least, between, one_of

CLUSTER_SETTINGS: Table = {
    Setting("num.partitions", "int", 1, at_least(1)): (
        "Partitions of a new topic, unless given.",
        "default of new topics",
    ),
    Setting("default.replication.factor", "int", 1, between(1, 32767)): (
        "Replicas of a new topic, unless given.",
        "default of new topics",
    ),
    Setting("auto.create.topics.enable", "bool", True): (
        "Create a topic when a producer asks for it; consumers never create one.",
        "auto-creation for producers",
    ),
    Setting("klog.auto.create.topics.per.second", "int", 10, at_least(0)): (
        "Limit on topics that a broker creates for clients per second; 0: no limit. klog's own.",
        "allows a burst of ten seconds; beyond it clients get LEADER_NOT_AVAILABLE and retry",
    ),
    Setting(
        "authorizer.class.name",
        "string",
        None,
        one_of("klog", "kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"),
    ): (
        "Check permissions: klog, or the name of Kafka's; without it everybody may do everything.",
        "every request is checked",
    ),
    Setting("super.users", "string", None): (
        "Principals that may do everything, separated by semicolons: User:admin;User:bob.",
        "who is permitted everything",
    ),
    Setting("allow.everyone.if.no.acl.found", "bool", False): (
        "Permit what no ACL is about.",
        "permission where a resource has no ACL",
    ),
    Setting("quota.window.num", "int", 11, between(1, 1000)): (
        "Windows by which a client's rate is measured for its quotas.",
        "after a silence a client may take at once what its quota allows for all windows but one",
    ),
    Setting("quota.window.size.seconds", "int", 1, between(1, 3600)): (
        "Length of each of them.",
        "see quota.window.num",
    ),
    Setting("controller.quota.window.num", "int", 11, between(1, 1000)): (
        "Windows for the quota of partitions created and deleted (controller_mutation_rate).",
        "what a client may create and delete at once: its quota for all windows",
    ),
    Setting("controller.quota.window.size.seconds", "int", 1, between(1, 3600)): (
        "Length of each of them.",
        "see controller.quota.window.num",
    ),
    Setting("delete.topic.enable", "bool", True): ("Allow the deletion of topics.", "deletion is refused if false"),
    Setting("min.insync.replicas", "int", 1, at_least(1)): (
        "In-sync replicas that acks=all requires.",
        "below it acks=all is refused; capped at the topic's number of replicas",
    ),
    Setting("unclean.leader.election.enable", "bool", False): (
        "Allow an out-of-sync replica to lead if no in-sync replica is alive; this loses acknowledged "
        "messages. Only a topic's own setting has an effect.",
        "none",
    ),
    Setting("unclean.restart.wait.ms", "int", 3000, at_least(0)): (
        "After a crash of all in-sync replicas of a partition: how long the controller waits for the missing "
        "ones before another one leads. klog's own.",
        "the partition has no leader meanwhile; once all are back, the most complete replica leads",
    ),
    Setting("klog.events.enable", "bool", True): (
        "Record the cluster's events in the topic klog.events. klog's own.",
        "producer of the topic; the controller keeps replicas of a topic that is there all the same",
    ),
    Setting("auto.leader.rebalance.enable", "bool", True): (
        "Return leadership to preferred replicas automatically.",
        "automatic preferred elections",
    ),
    Setting("leader.imbalance.per.broker.percentage", "int", 10, at_least(0)): (
        "Percentage of a broker's preferred partitions that others may lead.",
        "above it preferred leaders are elected",
    ),
    Setting("leader.imbalance.check.interval.seconds", "int", 300, at_least(1)): (
        "Interval of the check for imbalance.",
        "automatic preferred elections",
    ),
    Setting("controller.socket.timeout.ms", "ms", 30000, at_least(1)): (
        "Time limit of a broker's answer to the controller.",
        "afterwards the controller retries",
    ),
    Setting("replica.lag.time.max.ms", "ms", 10000, at_least(1)): (
        "How long a follower may lag before it leaves the in-sync replicas.",
        "ISR shrink; a leader whose own flush is overdue by it gives up leadership",
    ),
    Setting("replica.lag.max.messages", "int", None, at_least(1)): (
        "How many messages a follower may lag; off by default, since bursts make the ISR flap.",
        "ISR shrink",
    ),
    Setting("replica.socket.timeout.ms", "ms", 30000, at_least(1)): (
        "Time limit of a leader's answer to a follower.",
        "afterwards the follower reconnects",
    ),
    Setting("replica.socket.receive.buffer.bytes", "bytes", 65536, at_least(-1)): (
        "Receive buffer of a follower's connection.",
        "SO_RCVBUF if given; otherwise the kernel adapts it",
    ),
    Setting("replica.fetch.max.bytes", "bytes", 1048576, at_least(0)): (
        "Bytes per partition in a follower's fetch; at least one whole batch.",
        "replication",
    ),
    Setting("replica.fetch.response.max.bytes", "bytes", 10485760, at_least(0)): (
        "Bytes of a follower's fetch in total.",
        "replication",
    ),
    Setting("replica.fetch.wait.max.ms", "ms", 500, at_least(0)): (
        "How long a leader may hold a follower's fetch.",
        "replication",
    ),
    Setting("replica.fetch.min.bytes", "bytes", 1, at_least(0)): (
        "Bytes that a leader collects before it answers a follower.",
        "replication",
    ),
    Setting("replica.fetch.backoff.ms", "ms", 1000, at_least(0)): (
        "Follower back-off after an error.",
        "upper bound; the first back-offs are shorter",
    ),
    Setting("num.replica.fetchers", "int", 1, at_least(1)): (
        "Connections from a follower to each leader.",
        "the leader's partitions are divided among them",
    ),
    Setting("replica.high.watermark.checkpoint.interval.ms", "ms", 5000, at_least(1)): (
        "Interval of the high watermark checkpoint.",
        "checkpoint file",
    ),
    Setting("fetch.max.bytes", "bytes", 57671680, at_least(1024)): (
        "Upper bound on the size of a fetch, whatever the client asks for.",
        "size of answers",
    ),
    Setting("group.min.session.timeout.ms", "ms", 6000, at_least(1)): (
        "Shortest session timeout of a group member.",
        "JoinGroup with a shorter one is refused",
    ),
    Setting("group.max.session.timeout.ms", "ms", 1800000, at_least(1)): (
        "Longest session timeout of a group member.",
        "JoinGroup with a longer one is refused",
    ),
    Setting("group.initial.rebalance.delay.ms", "ms", 0, at_least(0)): (
        "How long an empty group waits for more members (Kafka: 3000, which delays its first member by 3 s).",
        "start of a group's first generation",
    ),
    Setting("group.max.size", "int", INT_MAX, at_least(1)): (
        "Largest number of members of a group.",
        "further members are refused",
    ),
    Setting("offset.metadata.max.bytes", "bytes", 4096, at_least(0)): (
        "Size of the metadata of a committed offset.",
        "larger commits are refused",
    ),
    Setting("offsets.retention.minutes", "int", 10080, at_least(1)): (
        "How long offsets are kept after a group's last member has left, or, without members, after each commit.",
        "expired offsets are deleted; never those of a group with members",
    ),
    Setting("offsets.retention.check.interval.ms", "ms", 600000, at_least(1)): (
        "Interval of the check for expired offsets.",
        "each coordinator checks its groups",
    ),
    Setting("offsets.commit.timeout.ms", "ms", 5000, at_least(1)): (
        "Time limit of a commit.",
        "limit on ZooKeeper's answer",
    ),
    Setting("offsets.storage", "enum", "zookeeper", one_of("zookeeper")): (
        "Where committed offsets are stored.",
        "none",
    ),
}
