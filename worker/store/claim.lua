-- Raises a partition's epoch if it is still the expected one, and returns the partition as it stands.
-- KEYS: metadata, then the live keys of the cells that were found. ARGV: how many these are, expected epoch and lineage
-- ('' for none), lineage to go on under, then the names of the cells, then fields and values to begin with.
local stored, at = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #stored, 2 do
  at[stored[i]] = i + 1
end
local epoch = stored[at.epoch] or ''
if epoch ~= ARGV[2] then
  return false
end
if epoch == '' and #stored > 0 then
  return redis.error_reply('metadata without an epoch: ' .. KEYS[1])
end
local fields, live = 5 + tonumber(ARGV[1]), {}
for i = 5, fields - 1 do
  live[ARGV[i]] = KEYS[i - 3]
end
local names, blobs = {}, {}
for cell in pairs(cjson.decode(stored[at.blobs] or '{}')) do
  if not live[cell] then
    return {stored} -- a commit came between: who claims names these, too, and nothing is written
  end
  names[#names + 1] = cell
  blobs[#blobs + 1] = redis.call('GET', live[cell])
end
if epoch == '' then
  stored = {unpack(ARGV, fields)}
  redis.call('HSET', KEYS[1], unpack(stored))
elseif stored[at.lineage] ~= ARGV[3] then
  return false
else
  -- together: who was the owner before is fenced off from the moment on that the layout may be another
  stored[at.epoch], stored[at.lineage] = string.format('%d', epoch + 1), ARGV[4]
  redis.call('HSET', KEYS[1], 'epoch', stored[at.epoch], 'lineage', ARGV[4])
end
return {stored, names, blobs}
