"""The controller: the broker that holds ``/controller`` and alone changes topics and leaders."""

from klog.server.controller.controller import Controller

__all__ = ["Controller"]
