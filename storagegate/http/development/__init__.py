"""
What C{withOptions(development={"hmr": True, "console": True})} does.

B{console}: each request, each error with its traceback, and where the application listens are
written to the console, in colour on a terminal.

B{hmr}: when a file of the program changes, the program is started again in a new process behind
the same listening sockets. Requests in flight end with the old code, new ones get the new. A
program that fails to start changes nothing, and its error is shown on the console and in open
pages. Pages that a browser has open are reloaded.

The supervisor is the process that was started first; it holds the sockets, and watches the files
of all loaded modules that are not installed. The process of the program that is its child has the
reloader, which is in the place of C{listen}, and the hub of the open pages::

    supervisor --spawns--> program: reloader -> listening ports, live reload -> pages
"""
