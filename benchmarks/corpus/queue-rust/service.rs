//! A queue that counts what it holds; a thread for each connection.  service PORT RATES
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

static HELD: AtomicUsize = AtomicUsize::new(2);

fn ask(rates: &str) {
    if rates == "0" {
        return;
    }
    let mut text = [0u8; 1];
    TcpStream::connect(format!("127.0.0.1:{rates}")).unwrap().read_exact(&mut text).unwrap();
    assert_eq!(text[0], b'2');
}

fn take(rates: &str) {
    ask(rates);
    let held = HELD.load(Ordering::SeqCst);
    HELD.store(held - 1, Ordering::SeqCst);
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let listening = TcpListener::bind(format!("127.0.0.1:{}", words[1])).unwrap();
    for client in listening.incoming() {
        let (client, rates) = (client.unwrap(), words[2].clone());
        std::thread::spawn(move || {
            let mut lines = BufReader::new(&client).lines();
            let first = lines.next().unwrap().unwrap();
            while lines.next().map_or(false, |line| !line.unwrap().is_empty()) {}
            if first.starts_with("GET /put") {
                HELD.fetch_add(1, Ordering::SeqCst);
            }
            if first.starts_with("GET /drop") {
                HELD.store(0, Ordering::SeqCst);
            }
            if first.starts_with("GET /take") {
                take(&rates);
            }
            (&client).write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok").unwrap();
        });
    }
}
