"""The admin shell: klog's commands under a prompt that completes, remembers and says which cluster it talks to.

It is handed the command tree and knows nothing of the command line's own modules, so that it cannot grow commands,
flags or parsing of its own.
"""
