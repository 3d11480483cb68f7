//! A hub of one file on the loopback interface, as far as `hf-hub` asks one: metadata, ranges, links to the bytes.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// How the hub behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    /// As it should.
    Good,
    /// There is no such file.
    NotFound,
    /// The first download breaks off after this many bytes.
    BreaksOnceAfter(usize),
    /// Every download starts at the first byte, whatever was asked for.
    IgnoresRanges,
    /// Connects, then says nothing.
    Mute,
}

/// What was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) range: String,
    pub(super) authorization: Option<String>,
}

pub(super) struct Hub {
    pub(super) endpoint: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    address: SocketAddr,
    server: Option<thread::JoinHandle<()>>,
}

impl Hub {
    pub(super) fn start(content: &[u8], manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (content, log) = (content.to_vec(), Arc::clone(&asked));
        let server = thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // A connection without a request ends the server, see `drop`.
                let Some(request) = read_request(&stream) else { return };
                let earlier = log
                    .lock()
                    .unwrap()
                    .iter()
                    .filter(|asked: &&Asked| asked.range != "bytes=0-0")
                    .count();
                log.lock().unwrap().push(request.clone());
                match manner {
                    Manner::Mute => held.push(stream),
                    // The client may hang up first.
                    _ => drop(answer(&mut stream, &request, &content, manner, earlier)),
                }
            }
        });
        Self {
            endpoint: format!("http://{address}"),
            asked,
            address,
            server: Some(server),
        }
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The ranges of the downloads, without the question for the length.
    pub(super) fn ranges(&self) -> Vec<String> {
        let ranges = self.asked().into_iter().map(|asked| asked.range);
        ranges.filter(|range| range != "bytes=0-0").collect()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        drop(TcpStream::connect(self.address));
        self.server.take().unwrap().join().unwrap();
    }
}

fn read_request(stream: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: Vec<(String, String)> = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            line.split_once(':')
                .map(|(name, value)| (name.to_lowercase(), value.trim().into()))
        })
        .collect();
    let header = |name: &str| {
        headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.clone())
    };
    Some(Asked {
        path,
        range: header("range").unwrap_or_default(),
        authorization: header("authorization"),
    })
}

fn answer(
    stream: &mut TcpStream,
    request: &Asked,
    content: &[u8],
    manner: Manner,
    earlier_downloads: usize,
) -> io::Result<()> {
    if manner == Manner::NotFound {
        return write!(
            stream,
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    let (first, end) = request.range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let is_download = end.is_empty();
    let mut first: usize = first.parse().unwrap();
    let end = end.parse().map_or(content.len(), |last: usize| last + 1);
    if is_download && manner == Manner::IgnoresRanges {
        first = 0;
    }
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\netag: \"e1\"\r\nx-repo-commit: c1\r\nconnection: close\r\n\
         content-length: {}\r\ncontent-range: bytes {first}-{}/{}\r\n\r\n",
        end - first,
        end - 1,
        content.len()
    )?;
    match manner {
        Manner::BreaksOnceAfter(length) if is_download && earlier_downloads == 0 => {
            stream.write_all(&content[first..first + length])
        }
        _ => stream.write_all(&content[first..end]),
    }
}
