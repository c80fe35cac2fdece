// The bench's service on Moleculer, behind moleculer-web.
//
//     NODE_ENV=production node moleculer.mjs PORT

import moleculer from 'moleculer'
import web from 'moleculer-web'

const [port] = process.argv.slice(2)
const broker = new moleculer.ServiceBroker({ logger: false })

broker.createService({
  name: 'Echo',
  actions: {
    echo: {
      params: { text: 'string' },
      handler: (context) => ({ text: context.params.text }),
    },
  },
})
broker.createService({
  mixins: [web],
  settings: {
    port: Number(port),
    ip: '127.0.0.1',
    routes: [
      {
        path: '/api',
        aliases: { 'POST Echo/echo': 'Echo.echo' },
        bodyParsers: { json: true },
        mappingPolicy: 'restrict',
      },
    ],
  },
})
broker.start()
