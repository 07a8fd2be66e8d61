"""The replicas of this broker: followed, led, repaired; their in-sync replicas watched, their logs maintained."""
