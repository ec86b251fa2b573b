-- Raises a partition's epoch if it is still the expected one, and returns the partition as it stands.
-- KEYS: metadata, then the live keys of the cells that were found. ARGV: how many these are, expected epoch and lineage
-- ('' for none), lineage to go on under, then the names of the cells, then fields and values to begin with.
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'lineage', 'blobs')
local epoch = stored[1] or ''
if epoch ~= ARGV[2] then
  return false
end
if epoch == '' and redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('metadata without an epoch: ' .. KEYS[1])
end
local fields, live = 5 + tonumber(ARGV[1]), {}
for i = 5, fields - 1 do
  live[ARGV[i]] = KEYS[i - 3]
end
local names, blobs = {}, {}
for cell in pairs(cjson.decode(stored[3] or '{}')) do
  if not live[cell] then
    return {redis.call('HGETALL', KEYS[1])} -- a commit came between: who claims names these, too, and nothing is written
  end
  names[#names + 1] = cell
  blobs[#blobs + 1] = redis.call('GET', live[cell])
end
if epoch == '' then
  redis.call('HSET', KEYS[1], unpack(ARGV, fields))
elseif stored[2] ~= ARGV[3] then
  return false
else
  -- together: who was the owner before is fenced off from the moment on that the layout may be another
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  redis.call('HSET', KEYS[1], 'lineage', ARGV[4])
end
return {redis.call('HGETALL', KEYS[1]), names, blobs}
