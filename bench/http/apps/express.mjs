// The bench's application on Express.
//
//     NODE_ENV=production node express.mjs PORT FILES ROUTES

import express from 'express'

const [port, files, routes] = process.argv.slice(2)
const app = express()

app.get('/hello', (req, res) => {
  res.type('text/plain').send('Hello, World!')
})
app.post('/echo', express.json(), (req, res) => {
  res.json(req.body)
})
app.use('/static', express.static(files))
for (let number = 0; number < Number(routes); number++) {
  app.get(`/r${number}/:id`, (req, res) => {
    res.json({ route: number, id: req.params.id })
  })
}
app.listen(Number(port), '127.0.0.1')
