"""The shell: klog's commands under a prompt that completes, remembers and shows which cluster it talks to.

It runs and completes the commands of the command line, and has a few of its own for what is about the shell.
"""
