//! How long `all_reduce` takes between processes of one host: `cargo run --release -p tessera-comm --example processes -- [PROCESSES]`.

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::process::Command;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use tessera_comm::control::{Coordinator, Place};
    use tessera_comm::socket::{Options, create};
    use tessera_comm::{
        Call, Cursor, Kind, Memory, Order, Piece, Request, Session, Socket, Step, Threads,
        Transport, run,
    };
    use tessera_diag::{Diagnostics, Loc};
    use tessera_numerics::{DType, ReduceOp};

    const LIMIT: Duration = Duration::from_secs(30);

    pub fn main() {
        match Place::read(|name| std::env::var(name).ok()) {
            Ok(Some(place)) => measure(&place),
            Ok(None) => launch(),
            Err(why) => panic!("{why}"),
        }
    }

    fn launch() {
        let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2);
        let with = Coordinator::start(("127.0.0.1", 0), count, "bench", LIMIT, Box::new(create));
        let with = with.expect("a coordinator");
        let start = |rank: usize| {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", count.to_string());
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", with.port().to_string());
            command.env("TESSERA_TOKEN", "bench").env("TESSERA_COORDINATOR", "launcher");
            command.spawn().expect("a process")
        };
        let children: Vec<_> = (0..count).map(start).collect();
        for mut child in children {
            assert!(child.wait().is_ok_and(|status| status.success()));
        }
    }

    /// `count` sums of one array, one after another.
    struct Sums {
        request: Request,
        count: usize,
        next: usize,
        waits: bool,
    }

    impl Cursor for Sums {
        fn step(&mut self) -> Result<Step, Diagnostics> {
            if self.waits {
                self.waits = false;
                self.next += 1;
                return Ok(Step::Wait(self.next - 1));
            }
            if self.next == self.count {
                return Ok(Step::Ended);
            }
            self.waits = true;
            Ok(Step::Start(Box::new(self.request.clone())))
        }
    }

    fn measure(place: &Place) {
        let session = Session::join(place, "bench", LIMIT, Options::default()).expect("the others");
        let world = place.world;
        let socket = Socket::new(session, world);
        let group = socket.group(&(0..world).collect::<Vec<_>>()).expect("a group");
        for (bytes, count) in
            [(8, 2000), (4 << 10, 1000), (64 << 10, 300), (1 << 20, 50), (16 << 20, 8)]
        {
            let mut data = vec![0_u8; bytes];
            let call = Call {
                kind: Kind::AllReduce(ReduceOp::Sum),
                dtype: DType::F32,
                counts: vec![bytes as u64 / 4],
                at: Loc::unknown(),
                part_of: None,
            };
            // SAFETY: `data` lives until the runs are over, and nothing else uses it.
            let memory = unsafe { Memory::host(data.as_mut_ptr(), bytes) };
            let piece: Arc<[Piece]> = [Piece::contiguous(0, bytes)].into();
            let (send, receive) = (piece.clone(), piece);
            let request =
                Request { group, call: call.into(), from: memory, send, to: memory, receive };
            let once = |count| {
                let mut sums = Sums { request: request.clone(), count, next: 0, waits: false };
                let begin = Instant::now();
                run(&socket, &mut [&mut sums], &Threads(1), Order::First).expect("sums");
                begin.elapsed().as_secs_f64() / count as f64
            };
            once(count / 4);
            let mut times: Vec<f64> = (0..5).map(|_| once(count)).collect();
            times.sort_by(f64::total_cmp);
            if place.rank == 0 {
                let bus = 2.0 * (world - 1) as f64 / world as f64 * bytes as f64 / times[2] / 1e9;
                println!(
                    "{world} processes, {bytes:>9} bytes: {:>10.1} µs, bus bandwidth {bus:.2} GB/s",
                    times[2] * 1e6
                );
            }
        }
    }
}
