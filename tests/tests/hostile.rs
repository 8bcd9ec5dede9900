//! Strangers that misuse a node, and nodes that lie to a client.
#![allow(clippy::disallowed_methods, reason = "real sockets need real time")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::UdpSocket;
use std::time::Duration;

use forebay_format::{ChunkId, FrameKind, RepositoryId};
use forebay_tests::{
    Class, Evil, Hello, Key, Relay, Rogue, Sandbox, Serving, Stranger, Way, assert_tree_equal, client, field, rnd,
    skipped, soak, tree_of, wait_until,
};
use forebay_transfer_proto::request::Reservation;
use forebay_transfer_proto::{Claim, Item, Purpose, REQUEST_BYTES_MAX, Reply, Request, Signed, Trouble};
use quinn::VarInt;

/// Files of one chunk each, so that a test knows the ids.
const FILES: u64 = 60;
const FILE_BYTES: usize = 60_000;

/// A gateway and an edge in front of a small repository, and a stranger's key.
struct Site {
    sandbox: Sandbox,
    gateway: Serving,
    edge: Serving,
    key: Key,
    ids: Vec<ChunkId>,
}

impl Site {
    fn new() -> Self {
        Self::of(FILES)
    }

    fn of(files: u64) -> Self {
        let sandbox = Sandbox::new();
        let mut ids = Vec::new();
        for number in 0..files {
            let content = rnd(number, FILE_BYTES);
            ids.push(ChunkId::of(&content));
            sandbox.write(format!("S/{number}"), content);
        }
        sandbox.json(["push", "S", "set"]).ok();
        let gateway = Serving::gateway(&sandbox, "gateway", &[]);
        let edge = Serving::edge(&sandbox, "edge", &gateway, &[]);
        Self { sandbox, gateway, edge, key: Key::new(7), ids }
    }

    /// Lets `attack` loose on both nodes; meanwhile and afterwards they serve whoever is honest.
    fn under<A, F>(&self, attack: A)
    where
        A: Fn(String) -> F,
        F: Future,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        for (name, node) in [("edge", &self.edge), ("gateway", &self.gateway)] {
            let left_open = runtime.block_on(attack(node.listen().to_owned()));
            self.is_honest(&format!("{name}-during"), node);
            drop(left_open);
            self.is_honest(&format!("{name}-after"), node);
        }
    }

    fn is_honest(&self, name: &str, node: &Serving) {
        let dest = format!("{name}.D");
        client(&self.sandbox, name, &node.addr(), &["fetch", "set", &dest]).run().ok();
        assert_tree_equal(&tree_of(self.sandbox.path(dest)), &tree_of(self.sandbox.path("S")));
        assert_eq!(node.http("/healthz").trim_end(), "ok");
    }

    async fn stranger(&self, node: &str) -> (Stranger, RepositoryId) {
        let stranger = Stranger::connect(node, &Hello::new(&self.key)).await.unwrap();
        let repository = stranger.resolve(&self.key, "set").await.unwrap().repository;
        (stranger, repository)
    }

    fn want(&self, claim: Signed) -> Request {
        Request::Want {
            claim,
            kind: FrameKind::Data as u8,
            reservation: None,
            fresh: false,
            ids: self.ids.clone(),
            to: "client".to_owned(),
        }
    }
}

/// What the last item says that goes wrong.
fn trouble(items: &[Item]) -> Option<Trouble> {
    match items.last() {
        Some(Item::Trouble { trouble, .. }) => Some(*trouble),
        _ => None,
    }
}

#[test]
fn an_honest_stranger_gets_what_it_asks_for() {
    let site = Site::new();
    let site = &site;
    site.under(|node| async move {
        let (stranger, repository) = site.stranger(&node).await;
        let request = site.want(site.key.claim(Some(repository), 600));
        let items = stranger.ask(&request.encode()).await.unwrap();
        let frames = items.iter().filter(|item| matches!(item, Item::Frame { .. }));
        assert_eq!(frames.count(), site.ids.len(), "this test's client speaks the protocol");
    });
}

#[test]
fn other_protocols_and_clients_without_a_key_are_turned_away() {
    let site = Site::new();
    let site = &site;
    site.under(|node| async move {
        for alpn in ["h3", "forebay/0", "forebay/2", ""] {
            let hello = Hello { alpn: alpn.into(), ..Hello::new(&site.key) };
            assert!(Stranger::connect(&node, &hello).await.is_err(), "{alpn:?}");
        }
        let nobody = Hello { key: None, ..Hello::new(&site.key) };
        // The client's side of the handshake ends before the node has seen that there is no key.
        if let Ok(stranger) = Stranger::connect(&node, &nobody).await {
            let request = Request::Authorize { claim: site.key.claim(None, 600) };
            let answer = stranger.ask(&request.encode()).await;
            assert!(answer.is_err(), "{answer:?}");
        }
    });
}

#[test]
fn bytes_that_are_no_request_are_refused() {
    let site = Site::new();
    let site = &site;
    site.under(|node| async move {
        let (stranger, repository) = site.stranger(&node).await;
        let whole = site.want(site.key.claim(Some(repository), 600)).encode();
        let mut wrong: Vec<Vec<u8>> = [0, 1, 10, 100, whole.len() - 1].map(|len| whole[..len].to_vec()).to_vec();
        wrong.push([&whole[..], &[0]].concat());
        wrong.push(rnd(9, 3000));
        wrong.push(vec![0x9f; 60_000]);
        wrong.push(vec![0x81; 60_000]);
        // An array of 2^63 ids.
        wrong.push([&whole[..40], &[0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]].concat());
        for number in [5, 6, 23, 24, 200] {
            // The number of the request stands in the second byte.
            let mut unknown = whole.clone();
            unknown[1] = number;
            wrong.push(unknown);
        }
        for bytes in wrong {
            let answer = stranger.ask(&bytes).await.unwrap();
            assert_eq!(trouble(&answer), Some(Trouble::Usage), "{} bytes: {answer:?}", bytes.len());
        }
    });
}

#[test]
fn requests_that_say_too_much_are_refused() {
    let site = Site::new();
    let site = &site;
    site.under(|node| async move {
        let (stranger, repository) = site.stranger(&node).await;
        let claim = || site.key.claim(Some(repository), 600);
        let many = vec![site.ids[0]; 1501];
        let Request::Want { claim: signed, kind, reservation, fresh, ids, to } = site.want(claim()) else { return };
        let want = |kind, ids, to| Request::Want { claim: signed.clone(), kind, reservation, fresh, ids, to };
        for request in [
            want(kind, many.clone(), to.clone()),
            want(kind, Vec::new(), to.clone()),
            want(0, ids.clone(), to.clone()),
            want(99, ids.clone(), to),
            want(kind, ids, "x".repeat(256)),
            Request::Reserve {
                claim: claim(),
                reservation: Reservation([1; 16]),
                ids: many,
                to: String::new(),
                avoided_bytes: u64::MAX,
            },
            Request::Resolve { claim: claim(), name: "set".parse().unwrap(), version: "9".repeat(65), step: false },
        ] {
            let answer = stranger.ask(&request.encode()).await.unwrap();
            assert_eq!(trouble(&answer), Some(Trouble::Usage), "{request:?}: {answer:?}");
        }
        // Longer than any request: the node stops reading, whatever the client still wants to say.
        let (mut send, _receive) = stranger.send(&[0; 1000], false).await.unwrap();
        let mut sent = 0;
        while sent < 16 * REQUEST_BYTES_MAX && send.write_all(&[0; 1000]).await.is_ok() {
            sent += 1000;
        }
        assert!(sent < 16 * REQUEST_BYTES_MAX, "the node takes a request without end");
    });
}

#[test]
fn requests_that_never_end_hold_nobody_up() {
    let site = Site::new();
    let site = &site;
    site.under(|node| async move {
        let (stranger, repository) = site.stranger(&node).await;
        let whole = site.want(site.key.claim(Some(repository), 600)).encode();
        let mut open = Vec::new();
        // A few less than the node allows: streams that have ended count until it is told.
        for _ in 0..50 {
            open.push(stranger.send(&whole[..whole.len() / 2], false).await.unwrap());
        }
        (stranger, open)
    });
}

#[test]
fn thousands_of_streams_are_no_more_than_sixty_four_at_a_time() {
    let site = Site::new();
    let site = &site;
    site.under(|node| async move {
        let (stranger, repository) = site.stranger(&node).await;
        let claim = site.key.claim(Some(repository), 600);
        let small = Request::Authorize { claim: claim.clone() }.encode();
        for _ in 0..5000 {
            let (_send, mut receive) = stranger.send(&small, true).await.unwrap();
            receive.stop(VarInt::from_u32(1)).unwrap();
        }
        // Each is reset in the middle of what it asks for, or of its answer.
        let want = site.want(claim).encode();
        for number in 0..2000 {
            let (mut send, mut receive) = stranger.send(&want, number % 2 == 0).await.unwrap();
            if number % 2 == 1 {
                send.reset(VarInt::from_u32(1)).unwrap();
            }
            receive.stop(VarInt::from_u32(1)).unwrap();
        }
        let answer = stranger.ask(&small).await.unwrap();
        assert_eq!(answer, [Item::Reply(Reply::Done)], "it is still served itself");
        stranger
    });
}

#[test]
fn a_client_that_stops_reading_takes_no_turns_from_others() {
    let site = Site::new();
    let site = &site;
    site.under(|node| async move {
        let hello = Hello { window: 1024, ..Hello::new(&site.key) };
        let stranger = Stranger::connect(&node, &hello).await.unwrap();
        let repository = site.stranger(&node).await.1;
        let want = site.want(site.key.claim(Some(repository), 600)).encode();
        let mut open = Vec::new();
        for _ in 0..50 {
            open.push(stranger.send(&want, true).await.unwrap());
        }
        // Some bytes of each answer have come, and are left where they are.
        tokio::time::sleep(Duration::from_millis(500)).await;
        (stranger, open)
    });
}

#[test]
fn what_lands_for_a_client_that_stopped_reading_is_not_held_in_memory() {
    const STREAMS: usize = 50;
    let site = Site::of(6000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let before = site.edge.peak_rss_bytes();
    let open = runtime.block_on(async {
        let hello = Hello { window: 1024, ..Hello::new(&site.key) };
        let stranger = Stranger::connect(site.edge.listen(), &hello).await.unwrap();
        let (_, repository) = site.stranger(site.edge.listen()).await;
        let claim = site.key.claim(Some(repository), 600);
        let mut open = Vec::new();
        for ids in site.ids.chunks(site.ids.len() / STREAMS) {
            let Request::Want { claim, kind, reservation, fresh, to, .. } = site.want(claim.clone()) else {
                unreachable!("a want")
            };
            let want = Request::Want { claim, kind, reservation, fresh, to, ids: ids.to_vec() };
            open.push(stranger.send(&want.encode(), true).await.unwrap());
        }
        (stranger, open)
    });
    // All of it is fetched, for nobody who reads it.
    wait_until("the edge has everything", Duration::from_secs(60), || {
        field(&site.edge.status()["cache"], "entries") >= site.ids.len() as u64
    });
    let grown = site.edge.peak_rss_bytes().saturating_sub(before);
    let landed = site.ids.len() * FILE_BYTES;
    assert!(grown < 160 << 20, "{} MiB more for {} MiB that landed", grown >> 20, landed >> 20);
    site.is_honest("meanwhile", &site.edge);
    drop(open);
    site.is_honest("afterwards", &site.edge);
}

#[test]
fn claims_that_do_not_hold_are_refused() {
    let site = Site::new();
    let site = &site;
    site.under(|node| async move {
        let (stranger, repository) = site.stranger(&node).await;
        let good = site.key.claim(Some(repository), 600);
        let mut forged = good.clone();
        forged.key = Key::new(8).id();
        let mut changed = good.clone();
        let claim = Claim { tenant: "somebody else".to_owned(), ..Claim::decode(&good.body).unwrap() };
        changed.body = claim.encode();
        let mut cut = good.clone();
        cut.body.pop();
        let purpose = site.key.sign(Purpose::Statement, good.body.clone());
        let far = site.key.claim(Some(RepositoryId::from_bytes([9; 16])), 600);
        let long = site.key.sign(Purpose::Claim, Claim { tenant: "x".repeat(256), ..claim }.encode());
        let wrong = [
            forged,
            changed,
            cut,
            purpose,
            far,
            long,
            site.key.claim(Some(repository), -600),
            site.key.claim(Some(repository), 10 * 86_400),
        ];
        for claim in wrong {
            let answer = stranger.ask(&site.want(claim.clone()).encode()).await.unwrap();
            assert_eq!(trouble(&answer), Some(Trouble::Auth), "{claim:?}: {answer:?}");
            assert_eq!(answer.len(), 1, "no content comes with a refusal");
        }
        let none = site.want(site.key.claim(None, 600)).encode();
        assert_eq!(trouble(&stranger.ask(&none).await.unwrap()), Some(Trouble::Auth), "a claim for no repository");
    });
    // What another client has signed is worth nothing at an edge, even where the gateway would take it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (stranger, repository) = site.stranger(site.edge.listen()).await;
        let stolen = site.want(Key::new(8).claim(Some(repository), 600)).encode();
        assert_eq!(trouble(&stranger.ask(&stolen).await.unwrap()), Some(Trouble::Auth));
    });
}

#[test]
fn handshakes_that_stop_half_way_keep_nobody_out() {
    let site = Site::new();
    let site = &site;
    site.under(|node| async move {
        let relay = Relay::start(&node);
        relay.silence_after(Way::ToClient, 0);
        let mut half_open = tokio::task::JoinSet::new();
        for _ in 0..700 {
            let (address, hello) = (relay.address(), Hello::new(&site.key));
            half_open.spawn(async move { Stranger::connect(&address, &hello).await.is_ok() });
        }
        // Each has sent at least one packet of 1,200 bytes.
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while relay.passed_bytes(Way::ToNode) < 700 * 1200 {
            assert!(std::time::Instant::now() < deadline, "{} bytes sent", relay.passed_bytes(Way::ToNode));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (relay, half_open)
    });
}

#[test]
fn noise_is_not_heard() {
    let site = Site::new();
    let site = &site;
    site.under(|node| async move {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let noise = rnd(77, 1 << 20);
        for number in 0..20_000_usize {
            let at = number * 37 % ((1 << 20) - 1500);
            let mut datagram = noise[at..at + 1 + number % 1400].to_vec();
            // Half of them look like the beginning of a connection: long header, version 1, ids of 8 bytes.
            if number % 2 == 0 && datagram.len() > 30 {
                datagram[0] = 0xc0 | (datagram[0] & 0x0f);
                datagram[1..6].copy_from_slice(&[0, 0, 0, 1, 8]);
                datagram[14] = 8;
            }
            // A full buffer of the system is no failure.
            socket.send_to(&datagram, &node).ok();
        }
    });
    wait_until("strangers leave nothing open", Duration::from_secs(60), || {
        field(&site.edge.status(), "connections") == 0
    });
}

fn data(request: &Request) -> bool {
    matches!(request, Request::Want { kind: 1, .. })
}

fn manifest(request: &Request) -> bool {
    matches!(request, Request::Want { kind, .. } if *kind != 1)
}

fn refs(request: &Request) -> bool {
    matches!(request, Request::Resolve { .. })
}

fn reservations(request: &Request) -> bool {
    matches!(request, Request::Reserve { .. } | Request::Release { .. })
}

/// A client that is given the liar first, and then a node that is honest; and one that has the liar alone.
fn is_not_fooled(evil: Evil, spoils: fn(&Request) -> bool, goes_on: bool) {
    if evil == Evil::Drips && !soak() {
        // A minute of patience with each; the scheduler's own tests have it without the wait.
        return skipped("a node that drips is waited for with FOREBAY_SOAK=1");
    }
    let site = Site::new();
    let rogue = Rogue::start(&site.gateway, evil, spoils);
    let source = tree_of(site.sandbox.path("S"));
    let is_right = |dest: &str| {
        for number in 0..FILES {
            let path = site.sandbox.path(format!("{dest}/{number}"));
            assert!(!path.exists() || std::fs::read(&path).unwrap() == rnd(number, FILE_BYTES), "{evil:?}: {number}");
        }
    };
    let named = [rogue.listen(), rogue.addr()[..64].to_owned()];
    let names_it = |said: &str| named.iter().any(|name| said.contains(name.as_str()));
    let refusals = [Class::Corrupt, Class::Auth, Class::Net];

    let both = format!("{},{}", rogue.addr(), site.edge.addr());
    let outcome = client(&site.sandbox, "both", &both, &["fetch", "set", "D"]).limit_s(180).run();
    assert!(rogue.spoilt() > 0, "{evil:?} was asked");
    if goes_on {
        assert_tree_equal(&tree_of(site.sandbox.path("D")), &source);
        outcome.ok();
    } else {
        is_right("D");
        let outcome = outcome.ends_in_one_of(&[&[Class::Ok], &refusals[..]].concat());
        assert!(outcome.code() == 0 || names_it(&outcome.said()), "{evil:?}: {outcome:?}");
    }

    let alone = client(&site.sandbox, "alone", &rogue.addr(), &["fetch", "set", "E"]).limit_s(180).run();
    is_right("E");
    let alone = alone.ends_in_one_of(&refusals);
    assert!(names_it(&alone.said()), "{evil:?} is named: {alone:?}");
}

macro_rules! liars {
    ($($name:ident: $evil:ident,)*) => {
        mod spoilt_data {
            use super::*;
            $(#[test]
            fn $name() {
                is_not_fooled(Evil::$evil, data, true);
            })*
        }
        mod spoilt_manifest {
            use super::*;
            $(#[test]
            fn $name() {
                is_not_fooled(Evil::$evil, manifest, true);
            })*
        }
        mod spoilt_refs {
            use super::*;
            $(#[test]
            fn $name() {
                is_not_fooled(Evil::$evil, refs, false);
            })*
        }
    };
}

liars! {
    garbage: Garbage,
    unasked: Unasked,
    unasked_for_ever: UnaskedForEver,
    missing_for_ever: MissingForEver,
    lying_header: LyingHeader,
    huge_item: HugeItem,
    half: Half,
    half_and_silence: HalfAndSilence,
    drips: Drips,
    flipped: Flipped,
    exchanged: Exchanged,
    reset: Reset,
    nothing: Nothing,
    closes: Closes,
}

#[test]
fn patches_that_make_nothing_are_asked_for_elsewhere() {
    is_not_fooled(Evil::Patched, data, true);
}

#[test]
fn spoilt_reservations_are_no_hang() {
    is_not_fooled(Evil::Garbage, reservations, false);
    is_not_fooled(Evil::Closes, reservations, false);
    if soak() {
        is_not_fooled(Evil::HalfAndSilence, reservations, false);
        is_not_fooled(Evil::Drips, reservations, false);
    }
}
