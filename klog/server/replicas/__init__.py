"""The replicas of this broker: followed, led, repaired; their in-sync sets watched, their logs maintained."""
