-- Returns a partition's metadata and blobs as they stand together.
-- KEYS: metadata, then the live keys of the cells that there were before. ARGV: the names of these cells.
local fields = redis.call('HGETALL', KEYS[1])
if #fields == 0 then
  return false
end
local live = {}
for i = 1, #ARGV do
  live[ARGV[i]] = KEYS[i + 1]
end
local names, blobs = {}, {}
local readable, cells = pcall(cjson.decode, redis.call('HGET', KEYS[1], 'blobs') or '{}')
if not readable or type(cells) ~= 'table' then
  return {fields} -- damaged: the reader finds that by the checksum
end
for cell in pairs(cells) do
  if not live[cell] then
    return {fields} -- who reads names these, too
  end
  names[#names + 1] = cell
  blobs[#blobs + 1] = redis.call('GET', live[cell])
end
return {fields, names, blobs}
