// The bench's service on @grpc/grpc-js.
//
//     NODE_ENV=production node grpcjs.mjs PORT PROTO

import { once } from 'node:events'
import grpc from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'

const [port, proto] = process.argv.slice(2)
const { bench } = grpc.loadPackageDefinition(loadSync(proto))
const server = new grpc.Server()

server.addService(bench.Echo.service, {
  once: (call, callback) => callback(null, call.request),
  repeat: async (call) => {
    for (let number = 0; number < call.request.copies; number++) {
      if (!call.write(call.request)) await once(call, 'drain')
    }
    call.end()
  },
  chat: (call) => {
    call.on('data', (note) => call.write(note))
    call.on('end', () => call.end())
  }
})
server.bindAsync(`127.0.0.1:${port}`, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error
})
