//! How programs are started: where they are found, what they inherit, and that their output stays whole.

mod support;

use serde_json::{json, Value};
use support::{Connection, Daemon};

fn shell(command: &str) -> Value {
    json!({"process": {"cmd": "/bin/sh", "args": ["-c", command]}, "stdin": false})
}

fn write_program(path: &std::path::Path, content: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, content).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
}

#[test]
fn test_programs_are_found_in_the_path_of_the_request() {
    let daemon = Daemon::start();
    let [empty, first, second] = ["empty", "first", "second"].map(|name| daemon.directory.path().join(name));
    for directory in [&empty, &first, &second] {
        std::fs::create_dir(directory).expect("made");
    }
    write_program(&first.join("tool"), "#!/bin/sh\n", 0o644);
    write_program(&second.join("tool"), "#!/bin/sh\necho found $1\n", 0o755);
    let path = |directories: &[&std::path::PathBuf]| {
        let directories: Vec<_> =
            directories.iter().map(|directory| directory.display().to_string()).collect();
        json!({"process": {"cmd": "tool", "args": ["it"], "envs": {"PATH": directories.join(":")}, "cwd": "/"}})
    };
    // What may not be executed is passed over, unless nothing else is found.
    let transcript = daemon.stream("process.Process/Start", &path(&[&empty, &first, &second])).finish();
    assert_eq!(transcript.stdout_text(), "found it\n");
    for (directories, reason) in
        [(vec![&empty, &first], "permission denied"), (vec![&empty], "no such file or directory")]
    {
        let error =
            daemon.stream("process.Process/Start", &path(&directories)).finish().error.expect("an error");
        assert_eq!(error["message"], format!("could not start 'tool': {reason}"));
    }
}

#[test]
fn test_a_script_without_interpreter_is_run_by_the_shell() {
    let daemon = Daemon::start();
    write_program(&daemon.directory.path().join("script"), "echo $0 $1\n", 0o755);
    let process = json!({"cmd": "./script", "args": ["word"], "cwd": daemon.directory.path()});
    let transcript = daemon.stream("process.Process/Start", &json!({"process": process})).finish();
    assert_eq!(transcript.stdout_text(), "./script word\n");
}

#[test]
fn test_a_program_inherits_no_descriptor_no_mask_and_no_ignored_signal() {
    let daemon = Daemon::start_with(|command| {
        use std::os::unix::process::CommandExt;
        // SAFETY: plain system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGHUP, libc::SIG_IGN);
                let mut mask = std::mem::zeroed();
                libc::sigaddset(&raw mut mask, libc::SIGUSR1);
                libc::sigprocmask(libc::SIG_BLOCK, &raw const mask, std::ptr::null_mut());
                Ok(())
            });
        }
    });
    let look =
        "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l; cat /proc/self/oom_score_adj";
    let text = daemon.stream("process.Process/Start", &shell(look)).finish().stdout_text();
    let zeros = "0000000000000000";
    // Three streams, and the directory that `ls` reads.
    assert_eq!(text, format!("SigBlk:\t{zeros}\nSigIgn:\t{zeros}\n4\n100\n"));
}

#[test]
fn test_much_output_of_several_processes_at_once_stays_whole() {
    let daemon = Daemon::start();
    let mut streams: Vec<Connection> = (0..4)
        .map(|number| {
            let command = format!("head -c 3000000 /dev/zero | tr '\\0' {number}; echo end >&2");
            daemon.stream("process.Process/Start", &shell(&command))
        })
        .collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        let transcript = stream.finish();
        let digit = b'0' + u8::try_from(number).expect("a digit");
        assert!(transcript.stdout.len() == 3_000_000 && transcript.stdout.iter().all(|byte| *byte == digit));
        assert_eq!(transcript.stderr, b"end\n");
    }
}
