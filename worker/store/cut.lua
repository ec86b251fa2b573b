-- Returns a partition's metadata and blobs as they stand together.
-- KEYS: metadata. ARGV: prefix of the window keys.
local fields = redis.call('HGETALL', KEYS[1])
if #fields == 0 then
  return false
end
local names, blobs = {}, {}
for window in pairs(cjson.decode(redis.call('HGET', KEYS[1], 'blobs') or '{}')) do
  names[#names + 1] = window
  blobs[#blobs + 1] = redis.call('GET', ARGV[1] .. window)
end
return {fields, names, blobs}
