-- Returns a partition's metadata and blobs as they stand together.
-- KEYS: metadata. ARGV: prefix of the cells' keys.
local fields = redis.call('HGETALL', KEYS[1])
if #fields == 0 then
  return false
end
local names, blobs = {}, {}
for cell in pairs(cjson.decode(redis.call('HGET', KEYS[1], 'blobs') or '{}')) do
  names[#names + 1] = cell
  blobs[#blobs + 1] = redis.call('GET', ARGV[1] .. cell)
end
return {fields, names, blobs}
