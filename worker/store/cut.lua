-- Reads a partition's metadata and blobs in one step.
-- KEYS: metadata, then the live keys of the cells of the previous cut. ARGV: the names of these cells.
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
  return {fields} -- damaged: the caller detects it by the checksum
end
for cell in pairs(cells) do
  if not live[cell] then
    return {fields} -- a new cell: the caller calls again with its key
  end
  names[#names + 1] = cell
  blobs[#blobs + 1] = redis.call('GET', live[cell])
end
return {fields, names, blobs}
