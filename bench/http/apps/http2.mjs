// A text on Node's own HTTP/2 server, without TLS.
//
//     NODE_ENV=production node http2.mjs PORT

import http2 from 'node:http2'

const [port] = process.argv.slice(2)
const server = http2.createServer()

server.on('stream', (stream) => {
  stream.respond({ ':status': 200, 'content-type': 'text/plain', 'content-length': 13 })
  stream.end('Hello, World!')
})
server.listen(Number(port), '127.0.0.1')
