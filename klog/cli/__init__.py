"""The ``klog`` command line: parsing and nothing else. The verbs are in ``klog.admin`` and
``klog.tools``, their tables in ``klog.render``.

One module holds one noun. A new noun is a new module and one line in ``klog.cli.command_table``. What every command
shares (which cluster, output, questions, errors, exit codes) is in ``klog.cli.invocation`` and comes with the decorator
``Noun.command``.
"""
