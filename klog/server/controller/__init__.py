"""The controller: the broker that holds ``/controller`` and alone changes topics and leaders."""
