"""
The option C{development}: C{console} shows requests and errors, C{hmr} reloads code and pages.

The initial process becomes the supervisor. It holds the listening sockets and runs the program as
its child. In the child, the reloader opens the ports and watches the program's files, and live
reload notifies open pages::

    supervisor --spawns--> program: reloader -> listening ports, live reload -> pages
"""
