"""
The engines of gRPC's servers and clients on the project's own HTTP/2, without grpcio.

The protocol is specified in U{https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md}. A
call is a stream of HTTP/2::

    HEADERS       :path /package.Service/Method, content-type application/grpc, te trailers,
                  grpc-timeout, grpc-encoding, grpc-accept-encoding, metadata
    DATA          messages: a flag (1 if compressed), the length in four bytes, the bytes
    HEADERS       of the response: grpc-encoding, grpc-accept-encoding, metadata
    DATA          messages of the response
    HEADERS       trailers: grpc-status, grpc-message, metadata

A response without messages has only one HEADERS frame, with the status.

L{server<storagegate.rpc.engine.native.server>} is a port and its L{connection
<storagegate.rpc.engine.native.connection>}s, whose streams are L{call
<storagegate.rpc.engine.native.call>}s; L{channel<storagegate.rpc.engine.native.channel>},
L{clientconnection<storagegate.rpc.engine.native.clientconnection>} and L{clientcall
<storagegate.rpc.engine.native.clientcall>} are their counterparts of a client.
"""
