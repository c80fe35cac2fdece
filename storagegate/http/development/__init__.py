"""
The option C{development}: C{console} shows requests and errors, C{hmr} reloads code and pages.

The process that is started first becomes the supervisor. It holds the listening sockets, watches
the files of the program, and runs the program as its child, where the reloader opens the ports and
live reload notifies open pages::

    supervisor --spawns--> program: reloader -> listening ports, live reload -> pages
"""
