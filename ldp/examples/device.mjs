// A device in JavaScript, in Node. In a browser only the path of the import differs.
import { Client } from "../clients/javascript/ldp-client.js"; // or "ldp-client", from its package

const client = new Client({
  protocol: "olh",
  epsilon: "1/1",
  domain_size: 3,
  g: 4,
  hash: "mul32",
  labels: ["red", "green", "blue"],
});
const kept = ["green", "green", "red"].map((value) => client.report(value)); // keep reports, not values
const [sent] = client.pack(kept, 100); // the operator's limit of reports per record

console.log("three frames of", kept[0].length, "bytes each");
console.log("one frame of", sent.length, "bytes, which begins with", `01${client.fingerprint}`);
