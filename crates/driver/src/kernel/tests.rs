//! Threads that compile one kernel, for a backend that holds compilations back.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;
use tessera_diag::{Code, SourceFile};
use tessera_frontend::{FuncSource, ParamKind, ParamSpec, Tunables};
use tessera_interp::Interp;
use tessera_numerics::{DType, NumType};
use tessera_target::{Artifact, Backend, Caps, CompileOptions};
use tessera_tile::TileFunc;

const SCALE: &str = "\
@ts.kernel
def scale(x: ts.Tensor['n', ts.f32]):
    i = ts.tile.linear_id()
    x[i] = x[i] * 3
";

fn scale() -> KernelHandle {
    let linear_id = Capture::Builtin("tile.linear_id".into());
    let source = FuncSource {
        name: "scale".into(),
        file: SourceFile::new("scale.py", SCALE, 1),
        captures: [("ts.tile.linear_id".into(), linear_id)].into(),
        defaults: BTreeMap::new(),
    };
    let kind = ParamKind::Tensor {
        dims: Some(vec!["n".into()]),
        elem: Some(NumType::plain(DType::F32)),
        privilege: None,
        out: false,
    };
    let decl = KernelDecl {
        source: Arc::new(source),
        params: vec![ParamSpec { name: "x".into(), kind, optional: false, default: None }],
        bundles: Vec::new(),
        tunables: Tunables::default(),
        lanes: Vec::new(),
        most_ops: tessera_frontend::MOST_OPS,
    };
    KernelHandle::new(decl, Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// The interpreter, with a compilation that waits for others and may fail.
struct Held {
    begun: AtomicUsize,
    /// Compilations end when this number of them has begun.
    together: usize,
    /// How many fail, the first ones.
    fail: usize,
}

impl Held {
    fn new(together: usize, fail: usize) -> Arc<Self> {
        Arc::new(Self { begun: AtomicUsize::new(0), together, fail })
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::Acquire)
    }
}

impl Backend for Held {
    fn name(&self) -> &'static str {
        "interp"
    }

    fn caps(&self) -> Caps {
        Interp.caps()
    }

    fn compile(
        &self,
        func: &TileFunc,
        options: &CompileOptions,
    ) -> Result<Box<dyn Artifact>, Diagnostics> {
        let number = self.begun.fetch_add(1, Ordering::AcqRel);
        let start = Instant::now();
        while self.begun() < self.together {
            if start.elapsed() > Duration::from_secs(20) {
                return Err(Diagnostic::new(Code::E_UNKNOWN, "the others never began").into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // Others that want the same are waiting.
        std::thread::sleep(Duration::from_millis(20));
        if number < self.fail {
            return Err(Diagnostic::new(Code::E_UNKNOWN, "as requested").into());
        }
        Interp.compile(func, options)
    }
}

type Found = Result<(Arc<Specialised>, bool), Diagnostics>;

/// What threads that begin together get, each for a profile.
fn compiled(kernel: &KernelHandle, backend: &Arc<Held>, profiles: &[Profile]) -> Vec<Found> {
    let start = Barrier::new(profiles.len());
    let one = |profile: Profile| {
        let choice = Choice { backend: backend.clone(), why: "a test" };
        let (config, pinned) = (Config::default(), BTreeMap::new());
        let mode = Mode { profile, ..Mode::default() };
        start.wait();
        kernel.specialise(&config, &pinned, &choice, mode, &Said::new(), None)
    };
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = profiles.iter().map(|&p| scope.spawn(move || one(p))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

#[test]
fn threads_with_other_configurations_do_not_wait_for_each_other() {
    let (kernel, backend) = (scale(), Held::new(2, 0));
    for found in compiled(&kernel, &backend, &[Profile::Default, Profile::Strict]) {
        assert!(found.is_ok_and(|(_, was_there)| !was_there));
    }
    assert_eq!(backend.begun(), 2);
}

#[test]
fn threads_with_one_configuration_compile_it_once() {
    let (kernel, backend) = (scale(), Held::new(1, 0));
    let found = compiled(&kernel, &backend, &[Profile::Default; 6]);
    assert_eq!(backend.begun(), 1);
    let specs: Vec<_> = found.iter().flatten().map(|(spec, _)| spec).collect();
    assert!(specs.len() == 6 && specs.iter().all(|spec| Arc::ptr_eq(spec, specs[0])));
}

#[test]
fn an_error_is_that_of_the_thread_that_compiled() {
    let (kernel, backend) = (scale(), Held::new(1, 1));
    let found = compiled(&kernel, &backend, &[Profile::Default; 4]);
    assert_eq!((found.iter().flatten().count(), backend.begun()), (3, 2));
}
