//! Ports on the loopback only are reachable on the external address. Runs in a network namespace of its own, where the
//! interface may have its real name.

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;

use support::{cannot_test, eventually, Daemon};

const EXTERNAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split(' ')).status().is_ok_and(|status| status.success())
}

/// Moves this thread, and what it starts, into a namespace with `lo` and `eth0`.
fn enter_namespace() -> bool {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_ok()
        && ip("link set lo up")
        && ip("link add eth0 type veth peer name peer0")
        && ip(&format!("address add {EXTERNAL}/30 dev eth0"))
        && ip("link set eth0 up")
        && ip("link set peer0 up")
}

fn exchange(port: u16) -> std::io::Result<String> {
    let mut client = TcpStream::connect((EXTERNAL, port))?;
    client.write_all(b"question")?;
    client.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    Ok(answer)
}

fn answer_one(service: &TcpListener, text: &str) {
    let (mut connection, _) = service.accept().expect("accepted");
    let mut question = String::new();
    connection.read_to_string(&mut question).expect("read");
    connection.write_all(format!("{question} {text}").as_bytes()).expect("answered");
}

#[test]
fn test_loopback_ports_are_forwarded_while_they_listen() {
    if !enter_namespace() {
        cannot_test("root, network namespaces and iproute2");
        return;
    }
    let _daemon = Daemon::start();
    for (address, text) in [("127.0.0.1:3000", "v4"), ("[::1]:3001", "v6")] {
        let service = TcpListener::bind(address).expect("bound");
        let port = service.local_addr().expect("bound").port();
        let mut client = None;
        eventually("the port is forwarded", || {
            client = TcpStream::connect((EXTERNAL, port)).ok();
            client.is_some()
        });
        drop(client);
        let (mut probe, _) = service.accept().expect("the probe arrived");
        assert_eq!(probe.read(&mut [0; 8]).expect("its end"), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| answer_one(&service, text));
            assert_eq!(exchange(port).expect("an answer"), format!("question {text}"));
        });
        drop((service, probe));
        eventually("the port is closed again", || TcpStream::connect((EXTERNAL, port)).is_err());
    }
}

#[test]
fn test_ports_that_are_open_anyway_are_left_alone() {
    if !enter_namespace() {
        cannot_test("root, network namespaces and iproute2");
        return;
    }
    let _daemon = Daemon::start();
    let wide = TcpListener::bind("0.0.0.0:4000").expect("bound");
    let marker = TcpListener::bind("127.0.0.1:4001").expect("bound");
    eventually("the marker is forwarded", || TcpStream::connect((EXTERNAL, 4001)).is_ok());
    std::thread::scope(|scope| {
        scope.spawn(|| answer_one(&wide, "directly"));
        assert_eq!(exchange(4000).expect("an answer"), "question directly");
    });
    drop((wide, marker));
    eventually("the daemon does not hold the port", || TcpListener::bind("0.0.0.0:4000").is_ok());
}
