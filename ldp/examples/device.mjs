// The same device in JavaScript, in Node; in a browser it is the same from the second line on.
import { Client } from "../clients/javascript/ldp-client.js"; // or "ldp-client", from its package

const client = new Client({
  protocol: "olh",
  epsilon: "1/1",
  domain_size: 3,
  g: 4,
  hash: "mul32",
  labels: ["red", "green", "blue"],
});
const kept = ["green", "green", "red"].map((value) => client.report(value)); // never the values
const [sent] = client.pack(kept, 100); // so many the operator takes in a record

console.log("three frames of", kept[0].length, "bytes each");
console.log("one frame of", sent.length, "bytes, which begins with", `01${client.fingerprint}`);
