-- Raises a partition's epoch if it is still the expected one, and returns the partition as it stands.
-- KEYS: metadata. ARGV: prefix of the cells' keys, expected epoch and lineage ('' for none), lineage to go on under, then
-- fields and values to begin with.
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'lineage')
local epoch = stored[1] or ''
if epoch ~= ARGV[2] then
  return false
end
if epoch == '' then
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.error_reply('metadata without an epoch: ' .. KEYS[1])
  end
  redis.call('HSET', KEYS[1], unpack(ARGV, 5))
elseif stored[2] ~= ARGV[3] then
  return false
else
  -- together: who was the owner before is fenced off from the moment on that the layout may be another
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  redis.call('HSET', KEYS[1], 'lineage', ARGV[4])
end
local names, blobs = {}, {}
for cell in pairs(cjson.decode(redis.call('HGET', KEYS[1], 'blobs'))) do
  names[#names + 1] = cell
  blobs[#blobs + 1] = redis.call('GET', ARGV[1] .. cell)
end
return {redis.call('HGETALL', KEYS[1]), names, blobs}
