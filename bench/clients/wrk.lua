-- What bench/wrk.py gives to wrk: a body to post, and figures that a program can read.

-- Called once with what stands behind "--" on the command line: the file of the body, if there is
-- one. wrk then encodes the request, once for the whole run.
function init(arguments)
   if arguments[1] then
      local file = assert(io.open(arguments[1], "rb"))
      wrk.method = "POST"
      wrk.body = file:read("*a")
      wrk.headers["Content-Type"] = "application/json"
      file:close()
   end
end

-- The report is the last line; wrk's own, which rounds, comes before it.
function done(summary, latency)
   local errors = summary.errors
   io.write(string.format(
      '\n{"requests":%d,"seconds":%.6f,"received":%.0f,"p50Ms":%.3f,"p99Ms":%.3f,'
      .. '"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}}\n',
      summary.requests, summary.duration / 1e6, summary.bytes,
      latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
      errors.connect, errors.read, errors.write, errors.status, errors.timeout
   ))
end
