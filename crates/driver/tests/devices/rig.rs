//! A fake device of a test's own, with a kernel and arrays on it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use tessera_diag::{Diagnostics, SourceFile};
use tessera_driver::device::{self, Memory};
use tessera_driver::frontend::{Capture, FuncSource, KernelDecl, ParamKind, ParamSpec, Tunables};
use tessera_driver::{
    Arg, ArrayArg, Ask, Backends, BufferArg, Call, DeviceId, DeviceKind, Family, KernelHandle,
    Number, Options, Place, Queue, Streams, register,
};
use tessera_fake_device::{Fake, FakeBackend, FakeDevice, Order};
use tessera_numerics::{DType, NumType, Profile};
use tessera_target::Backend;
use tessera_target::device::Device;

/// Devices of the platform: each rig has some of its own.
pub const COUNT: u32 = 10_000;

static FAKE: LazyLock<Arc<Fake>> = LazyLock::new(|| {
    let fake = Arc::new(Fake::new(COUNT));
    assert!(register(fake.clone()), "the kind is free");
    fake
});
static NEXT: AtomicU32 = AtomicU32::new(0);

struct FakeFamily;

impl Family for FakeFamily {
    fn memory(&self) -> DeviceKind {
        DeviceKind::FAKE
    }

    fn missing(&self) -> Option<String> {
        None
    }

    fn to_compile(
        &self,
        arch: Option<&str>,
        device: Option<u32>,
    ) -> Result<Arc<dyn Backend>, Diagnostics> {
        self.on_device(device.unwrap_or(0), arch)
    }

    fn on_device(&self, device: u32, _: Option<&str>) -> Result<Arc<dyn Backend>, Diagnostics> {
        Ok(Arc::new(FakeBackend::new(&FAKE, device)?))
    }
}

const SCALED: &str = "\
@ts.kernel
def scaled(x: ts.Tensor['n', ts.f32], y: ts.Tensor['n', ts.f32], alpha: ts.f32):
    i = ts.tile.linear_id()
    y[i] = x[i] * alpha
";

pub fn scaled() -> Arc<KernelHandle> {
    scaled_named("scaled")
}

/// The same by another name.
pub fn scaled_named(name: &str) -> Arc<KernelHandle> {
    let text = SCALED.replace("scaled", name);
    let linear_id = Capture::Builtin("tile.linear_id".into());
    let source = FuncSource {
        name: name.into(),
        file: SourceFile::new("scaled.py", &text, 1),
        captures: [("ts.tile.linear_id".into(), linear_id)].into(),
        defaults: BTreeMap::new(),
    };
    let array = || ParamKind::Tensor {
        dims: Some(vec!["n".into()]),
        elem: Some(NumType::plain(DType::F32)),
        privilege: None,
        out: false,
    };
    let param =
        |name: &str, kind| ParamSpec { name: name.into(), kind, optional: false, default: None };
    let decl = KernelDecl {
        source: Arc::new(source),
        params: vec![
            param("x", array()),
            param("y", array()),
            param("alpha", ParamKind::Scalar(DType::F32)),
        ],
        bundles: Vec::new(),
        tunables: Tunables::default(),
        lanes: Vec::new(),
        most_ops: tessera_frontend::MOST_OPS,
    };
    Arc::new(KernelHandle::new(decl, Options::default()).unwrap_or_else(|e| panic!("{e}")))
}

pub struct Rig {
    pub id: DeviceId,
    pub fake: Arc<FakeDevice>,
    pub backends: Backends,
}

/// A row of f32 on a device.
pub struct Row {
    pub memory: Memory,
    pub view: BufferArg,
}

impl Rig {
    /// A device of an architecture of its own: other tests do not share its code.
    pub fn new(order: Order) -> Self {
        let [rig] = Self::of_archs(order, [0]);
        rig
    }

    /// Devices of these architectures, each of which only these have; a number stands for one.
    pub fn of_archs<const N: usize>(order: Order, archs: [u32; N]) -> [Self; N] {
        let first = NEXT.fetch_add(N as u32, Ordering::Relaxed);
        let mut ordinal = first;
        archs.map(|arch| {
            let made = FAKE.device_of_arch(ordinal, &format!("fake-{first}-{arch}"));
            let fake = made.unwrap_or_else(|e| panic!("{e}"));
            fake.set_order(order);
            let backends = Backends::default().with_family("fake", Arc::new(FakeFamily));
            let id = DeviceId::new(DeviceKind::FAKE, ordinal);
            ordinal += 1;
            Self { id, fake, backends }
        })
    }

    pub fn arch(&self) -> &str {
        &self.fake.info().arch
    }

    /// Kernels that code was generated of, for its architecture.
    pub fn generated(&self) -> u64 {
        FAKE.kernels(self.arch())
    }

    /// Calls this before code of a kernel is generated for its architecture.
    pub fn before_kernels(&self, call: impl Fn(&str) + Send + Sync + 'static) {
        FAKE.before_kernels(self.arch(), call);
    }

    pub fn backend(&self) -> FakeBackend {
        FakeBackend::new(&FAKE, self.id.ordinal).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Compiles a kernel of the form of `scaled` for its device, and runs nothing.
    pub fn compile(&self, kernel: &KernelHandle, profile: Profile) -> Result<(), Diagnostics> {
        let row = self.row(3, 0)?;
        let array = || ArrayArg { buffer: row.view.clone(), place: Place::Device(self.id) };
        let ask = Ask { profile, ..Ask::default() };
        kernel.prepare(&self.backends, Self::call(array(), array()), ask).map(|_| ())
    }

    pub fn queue(&self, stream: u64) -> Queue {
        Queue { device: self.id, stream }
    }

    pub fn row(&self, count: usize, stream: u64) -> Result<Row, Diagnostics> {
        Row::new(self.queue(stream), count)
    }

    /// A call of `scaled` on these arrays.
    pub fn call(x: ArrayArg, y: ArrayArg) -> Call {
        let alpha = Arg::Number { value: Number::Int(3), dtype: None };
        Call { positional: vec![Arg::Array(x), Arg::Array(y), alpha], keyword: Vec::new() }
    }

    pub fn launch(
        &self,
        kernel: &KernelHandle,
        (x, y): (&Row, &Row),
        streams: Streams,
    ) -> Result<(), Diagnostics> {
        let on = streams.on;
        let ask = Ask { streams, ..Ask::default() };
        let place =
            |row: &Row| ArrayArg { buffer: row.view.clone(), place: Place::Device(self.id) };
        let call = Self::call(place(x), place(y));
        kernel.launch(kernel.prepare(&self.backends, call, ask)?)?;
        x.memory.used_on(on);
        y.memory.used_on(on);
        Ok(())
    }
}

impl Row {
    pub fn new(queue: Queue, count: usize) -> Result<Self, Diagnostics> {
        let memory = Memory::new(queue, 4 * count as u64)?;
        let view = BufferArg {
            data: memory.address() as *mut u8,
            dims: vec![count as i64],
            strides: vec![4],
            dtype: DType::F32,
            writable: true,
        };
        Ok(Self { memory, view })
    }

    pub fn write(&self, values: &[f32], queue: Queue) -> Result<(), Diagnostics> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.memory.used_on(queue.stream);
        device::write(&self.view, queue, &bytes)
    }

    pub fn read(&self, queue: Queue) -> Result<Vec<f32>, Diagnostics> {
        let mut bytes = vec![0; 4 * self.view.dims[0] as usize];
        self.memory.used_on(queue.stream);
        device::read(&self.view, queue, &mut bytes)?;
        let value = |word: &[u8]| f32::from_le_bytes(word.try_into().unwrap_or_default());
        Ok(bytes.chunks_exact(4).map(value).collect())
    }
}

/// One row in host memory as an argument.
pub fn on_host(values: &mut [f32]) -> ArrayArg {
    let buffer = BufferArg {
        data: values.as_mut_ptr().cast(),
        dims: vec![values.len() as i64],
        strides: vec![4],
        dtype: DType::F32,
        writable: true,
    };
    ArrayArg { buffer, place: Place::Host }
}
