"""The gateway: one service definition, answered over HTTP, WebSocket, gRPC, UDP and TCP."""
