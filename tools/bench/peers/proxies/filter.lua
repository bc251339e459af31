-- Refuses calls of a name: reads the whole message, and in it the string of field 1. The name is short, so that its length
-- is one byte; behind it, as far as this filter reads, may be anything.
function envoy_on_request(handle)
  local body = handle:body()
  if body == nil or body:length() < 7 then return end
  local message = body:getBytes(5, body:length() - 5)
  if message:byte(1) ~= 10 then return end
  if message:sub(3, 2 + message:byte(2)) ~= "mallory" then return end
  handle:respond({[":status"] = "200", ["content-type"] = "application/grpc", ["grpc-status"] = "7", ["grpc-message"] = "refused"}, "")
end
