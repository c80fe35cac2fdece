"""
What C{withOptions(development={"hmr": True, "console": True})} does.

B{console}: each request, each error with its traceback, and where the application listens are
written to the console, in colour on a terminal.

B{hmr}: when a file of the application changes, its code is loaded again while the listening socket
stays open. What runs: requests in flight end with the old code, new ones get the new. What does
not load changes nothing, and is shown on the console and in open pages. Pages that a browser has
open are reloaded.

The application's files are those below the directory of its script (for C{python -m package}, the
directory that the package is in), without what is installed. The modules that changed are executed
again, those that import them, those that hold a router which one of these imports, and the script.
Everything else keeps its state. Where the script is not the application's own, such as a test
runner's, an application that is a global of a module that was executed again takes the old one's
place.

What a reload cannot do: whatever the old code has started besides (delayed calls, threads) goes
on. What follows C{app.run()} in a script, C{finally} blocks too, runs right after a reload. A
script that installs a reactor has to look first whether there is one.
"""
