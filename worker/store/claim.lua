-- Claims a partition: raises its epoch if that is the expected one, and returns the partition.
-- KEYS: metadata, then the live keys of the cells that were found. ARGV: number of these cells; expected epoch, lineage
-- and commit_id ('' for none); new epoch, lineage and checksum; names of the cells; then the fields and values to store
-- if there are no metadata.
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
local fields, names, blobs = 8 + tonumber(ARGV[1]), {}, {}
if epoch == '' then
  stored = {unpack(ARGV, fields)}
  redis.call('HSET', KEYS[1], unpack(stored))
  return {stored, names, blobs}
end
if stored[at.lineage] ~= ARGV[3] then
  return false
end
if stored[at.commit_id] ~= ARGV[4] then
  return {stored} -- a commit came in between: the caller computes the checksum for these metadata and calls again
end
for i = 8, fields - 1 do
  names[#names + 1] = ARGV[i]
  blobs[#blobs + 1] = redis.call('GET', KEYS[i - 6])
end
for i = 1, #KEYS do
  redis.call('PERSIST', KEYS[i]) -- counts never expire, even if another client set an expiry
end
-- in one HSET, because the checksum covers the other fields
local changed = {'epoch', ARGV[5], 'lineage', ARGV[6], 'checksum', ARGV[7]}
redis.call('HSET', KEYS[1], unpack(changed))
for i = 1, #changed, 2 do
  local place = at[changed[i]] or #stored + 2
  stored[place - 1], stored[place] = changed[i], changed[i + 1]
end
return {stored, names, blobs}
