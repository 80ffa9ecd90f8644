//! Memory: copies, the pool, tensor maps.

use crate::{Checked, Rig, TMA, add, bytes, ensure, floats, refuses, words};
use std::time::{Duration, Instant};
use tessera_diag::Code;
use tessera_runtime::cuda::*;

pub fn copies(rig: &Rig) -> Checked {
    let (n, s) = ((100 << 20) + 12_345, rig.stream.handle());
    let data: Vec<u8> = (0..n).map(|i: usize| (i * 31 + (i >> 13)) as u8).collect();
    let (one, two) = (rig.alloc(n)?, rig.alloc(n)?);
    let rate = |bytes: usize, time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    let mut out = vec![0; n];
    let mut best = [0.0_f64; 2];
    for _ in 0..3 {
        let start = Instant::now();
        one.write(0, &data, s)?;
        rig.stream.synchronize()?;
        best[0] = best[0].max(rate(n, start.elapsed()));
        two.copy_from(&one, s)?;
        out.fill(0);
        rig.stream.synchronize()?;
        let start = Instant::now();
        two.read(0, &mut out, s)?;
        best[1] = best[1].max(rate(n, start.elapsed()));
        ensure(out == data, "bytes differ")?;
    }
    let start = Instant::now();
    for i in 0..1000 {
        one.write(8 * i, &i.to_le_bytes(), s)?;
    }
    let small = start.elapsed() / 1000;
    let mut first = [0; 8000];
    one.read(0, &mut first, s)?;
    let right = (0..1000_u64).all(|i| first[8 * i as usize..][..8] == i.to_le_bytes());
    ensure(right, "small copies are wrong")?;
    refuses(Code::E_ARGUMENT, one.write(one.len() - 1, &[0; 2], s))?;
    Ok(format!("in {:.1} GB/s, out {:.1} GB/s, 8 bytes in {small:?}", best[0], best[1]))
}

pub fn pool_reuse(rig: &Rig) -> Checked {
    let pool = rig.device.pool();
    pool.trim()?;
    let before = pool.stats();
    let (s, other) = (rig.stream.handle(), Stream::new(&rig.device)?);
    let first = pool.alloc(3 << 20, s)?;
    let address = first.address();
    drop(first);
    let again = pool.alloc(3 << 20, s)?;
    ensure(again.address() == address, "not used again on its own stream")?;
    let spin = rig.module.function("spin")?;
    // SAFETY: the kernel takes a count of nanoseconds.
    unsafe { spin.launch(&LaunchShape::new([1, 1, 1], 1), &words(&[20_000_000]), &[], s) }?;
    drop(again);
    let elsewhere = pool.alloc(3 << 20, other.handle())?;
    ensure(elsewhere.address() != address, "used on another stream while work was in flight")?;
    rig.stream.synchronize()?;
    let later = pool.alloc(3 << 20, other.handle())?;
    ensure(later.address() == address, "not used on another stream when the work was over")?;
    drop((elsewhere, later));
    let start = Instant::now();
    for _ in 0..10_000 {
        drop(pool.alloc(4096, s)?);
    }
    let each = start.elapsed() / 10_000;
    let trimmed = pool.trim()?;
    ensure(pool.stats().held == before.held, format!("{:?}", pool.stats()))?;
    Ok(format!("alloc and free in {each:?}, trimmed {trimmed} bytes, {:?}", pool.stats()))
}

pub fn out_of_memory(rig: &Rig) -> Checked {
    let total = rig.device.memory()?.total;
    let held = rig.alloc(100 << 20)?;
    let error = refuses(Code::E_OOM, rig.device.pool().alloc(2 * total, rig.stream.handle()))?;
    ensure(!error.sticky && error.to_string().contains(&(2 * total).to_string()), "no figures")?;
    drop(held);
    // What the pool keeps is given back when it is in the way of a request.
    let free = rig.device.memory()?.free;
    drop(rig.alloc(free as usize / 2)?);
    let most = rig.alloc((free as f64 * 0.7) as usize)?;
    drop(most);
    rig.device.pool().trim()?;
    ensure(add(rig, &rig.stream, 5000, 1)? == 0, "wrong afterwards")?;
    Ok(error.to_string().replace('\n', " / "))
}

pub fn tensor_map(rig: &Rig) -> Checked {
    let (rows, cols, s) = (64_usize, 128_usize, rig.stream.handle());
    let (matrix, out) = (rig.alloc(4 * rows * cols)?, rig.alloc(4 * 256)?);
    let spec = TensorMapSpec::tiled(
        MapDType::F32,
        matrix.address(),
        &[cols as u64, rows as u64],
        &[4 * cols as u64],
        &[32, 8],
    )
    .map_err(CudaError::from)?;
    if !rig.device.info().tensor_maps {
        return Ok(refuses(Code::E_UNSUPPORTED, rig.device.tensor_map(&spec))?.to_string());
    }
    let map = rig.device.tensor_map(&spec)?;
    ensure(map.bytes().iter().any(|&b| b != 0), "an empty map")?;
    let start = Instant::now();
    let mut again = map;
    for _ in 0..1000 {
        again = rig.device.tensor_map(&spec)?;
    }
    let found = start.elapsed() / 1000;
    ensure(again == map, "another map for the same array")?;
    let spec_128 = spec.swizzle(Swizzle::B128);
    ensure(rig.device.tensor_map(&spec_128)? != map, "the swizzle changed nothing")?;
    refuses(Code::E_LAUNCH_BAD_LAYOUT, {
        let odd = TensorMapSpec::tiled(MapDType::F32, matrix.address() + 4, &[32], &[], &[32]);
        rig.device.tensor_map(&odd.map_err(CudaError::from)?)
    })?;
    let data = floats(rows * cols, 5);
    matrix.write(0, &bytes(&data), s)?;
    let module = Module::load(&rig.device, TMA.as_bytes(), &LoadOptions::default())?;
    let tile = module.function("tile")?;
    let params = [&map.bytes()[..], &words(&[out.address()])].concat();
    // SAFETY: the kernel takes a map and an address for 256 floats.
    unsafe { tile.launch(&LaunchShape::new([1, 1, 1], 256), &params, &[0, 128], s) }?;
    let mut got = vec![0; 4 * 256];
    out.read(0, &mut got, s)?;
    let rows_of_box = (8..16).flat_map(|r| data[r * cols + 32..r * cols + 64].iter().copied());
    ensure(got == bytes(&rows_of_box.collect::<Vec<_>>()), "the box is wrong")?;
    Ok(format!("TMA copied a box; a kept map is found in {found:?}"))
}

pub fn pointers(rig: &Rig) -> Checked {
    let (buffer, host) = (rig.alloc(1000)?, [0_u8; 16]);
    let of_device = pointer_device(buffer.address() + 17);
    let of_host = pointer_device(host.as_ptr() as u64);
    ensure((of_device, of_host) == (Some(0), None), format!("{of_device:?} {of_host:?}"))?;
    Ok("device memory is cuda:0's, a stack's is not".into())
}
