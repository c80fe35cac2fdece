// A load of the bench's service by @grpc/grpc-js.
//
//     NODE_ENV=production node client_grpcjs.mjs PORT PROTO METHOD CALLS SECONDS

import grpc from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'

const [port, proto, method, calls, seconds] = process.argv.slice(2)
const { bench } = grpc.loadPackageDefinition(loadSync(proto))
const note = { text: 'hello, hello, hello!', copies: 1000 }
const warmSeconds = 0.5
const client = new bench.Echo(`127.0.0.1:${port}`, grpc.credentials.createInsecure())
let messages = 0
let times = []

const read = (call) => new Promise((resolve, reject) => {
  call.on('data', () => { messages++ })
  call.on('end', resolve)
  call.on('error', reject)
})

const make = {
  once: () => new Promise((resolve, reject) => {
    client.once(note, (error) => {
      messages++
      error ? reject(error) : resolve()
    })
  }),
  repeat: () => read(client.repeat(note)),
  chat: async () => {
    const call = client.chat()
    const reading = read(call)
    for (let number = 0; number < note.copies; number++) {
      if (!call.write(note)) await new Promise((resolve) => call.once('drain', resolve))
    }
    call.end()
    await reading
  }
}[method]

async function run (time) {
  const end = performance.now() + time * 1000
  const one = async () => {
    for (let begun = performance.now(); begun < end; begun = performance.now()) {
      await make()
      times.push(performance.now() - begun)
    }
  }
  await Promise.all(Array.from({ length: Number(calls) }, one))
}

await run(warmSeconds)
messages = 0
times = []
const before = process.cpuUsage()
const begun = performance.now()
await run(Number(seconds))
const used = process.cpuUsage(before)
const took = (performance.now() - begun) / 1000
times.sort((a, b) => a - b)
console.log(JSON.stringify({
  requests: messages,
  seconds: took,
  p50Ms: times[Math.floor(times.length / 2)],
  p99Ms: times[Math.floor(times.length * 0.99)],
  serverSeconds: (used.user + used.system) / 1e6
}))
client.close()
