"""The broker's side of the group protocol: members, generations, committed offsets."""
