// A client of oblivious HTTP with the crates ohttp and bhttp, for tests/integration/kafka/test_gateway.py.
// Each line of stdin is a request: length method path content names and values of fields, in hexadecimal but the first.
// For each, it prints the status and the content of the encapsulated answer.
// usage: interop ADDRESS
use bhttp::{Message, Mode};
use ohttp::ClientRequest;
use std::io::{Cursor, Read, Write};

fn http(address: &str, head: &str, body: &[u8]) -> Vec<u8> {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!("{head} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: message/ohttp-req\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    answer.split_off(end + 4)
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn main() {
    let address = std::env::args().nth(1).unwrap();
    let keys = http(&address, "GET /ohttp-keys", b"");
    for line in std::io::stdin().lines().map(Result::unwrap) {
        let words: Vec<&str> = line.split(' ').collect();
        let mode = if words[0] == "known" { Mode::KnownLength } else { Mode::IndeterminateLength };
        let mut message = Message::request(bytes(words[1]), b"https".to_vec(), b"reports.example.org".to_vec(), bytes(words[2]));
        message.write_content(bytes(words[3]));
        for field in words[4..].chunks(2) {
            message.put_header(bytes(field[0]), bytes(field[1]));
        }
        let mut plain = Vec::new();
        message.write_bhttp(mode, &mut plain).unwrap();
        plain.resize(plain.len().next_multiple_of(256), 0);
        let (sealed, response) = ClientRequest::from_encoded_config_list(&keys).unwrap().encapsulate(&plain).unwrap();
        let opened = response.decapsulate(&http(&address, "POST /ohttp", &sealed)).unwrap();
        let answer = Message::read_bhttp(&mut Cursor::new(&opened[..])).unwrap();
        let status = u16::from(answer.control().status().unwrap());
        println!("{status} {}", answer.content().iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }
}
