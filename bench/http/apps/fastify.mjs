// The bench's application on Fastify, with schemas for its responses.
//
//     NODE_ENV=production node fastify.mjs PORT FILES ROUTES

import Fastify from 'fastify'
import fastifyStatic from '@fastify/static'

const [port, files, routes] = process.argv.slice(2)
const app = Fastify()

const answers = (properties) => ({
  schema: { response: { 200: { type: 'object', properties } } }
})
const route = answers({ route: { type: 'integer' }, id: { type: 'string' } })
const order = answers({
  id: { type: 'integer' },
  user: { type: 'string' },
  paid: { type: 'boolean' },
  items: {
    type: 'array',
    items: {
      type: 'object',
      properties: {
        sku: { type: 'string' },
        count: { type: 'integer' },
        price: { type: 'number' },
        tags: { type: 'array', items: { type: 'string' } }
      }
    }
  },
  note: { type: 'string' }
})

app.get('/hello', (request, reply) => {
  reply.type('text/plain').send('Hello, World!')
})
app.post('/echo', order, (request, reply) => {
  reply.send(request.body)
})
app.register(fastifyStatic, { root: files, prefix: '/static/' })
for (let number = 0; number < Number(routes); number++) {
  app.get(`/r${number}/:id`, route, (request, reply) => {
    reply.send({ route: number, id: request.params.id })
  })
}
await app.listen({ port: Number(port), host: '127.0.0.1' })
