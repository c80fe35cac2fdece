"""What speaks gRPC on the wire, behind the seam of C{rpc.interfaces}."""
