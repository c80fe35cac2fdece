// An echo of messages on ws.
//
//     NODE_ENV=production node ws.mjs PORT

import { WebSocketServer } from 'ws'

const [port] = process.argv.slice(2)
const server = new WebSocketServer({
  host: '127.0.0.1',
  port: Number(port),
  perMessageDeflate: false,
})

server.on('connection', (socket) => {
  socket.on('message', (message, isBinary) => socket.send(message, { binary: isBinary }))
})
