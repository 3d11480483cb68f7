use cluster_kernels::{KvDType, KvShape};

use super::HeadMap;

/// Two layers of four heads, each head's part of a block a run of equal bytes.
#[test]
fn pages_are_put_together_and_taken_apart_by_head() {
    let shape = KvShape {
        layers: 2,
        kv_heads: 4,
        head_dim: 16,
        block_tokens: 16,
        dtype: KvDType::F16,
    };
    let head_bytes = shape.block_bytes() / 8;
    let heads = |heads: &[u8]| -> Vec<u8> { heads.iter().flat_map(|head| vec![*head; head_bytes]).collect() };
    let page = heads(&[0, 1, 2, 3, 10, 11, 12, 13]);
    // The second rank has nothing, head 1 is kept twice and by the third rank at two places.
    let map = HeadMap::new(4, vec![vec![0, 1], vec![], vec![1, 1, 2], vec![3]]);
    assert_eq!(map.shape(2, shape).kv_heads, 3);

    let sizes = [4, 0, 6, 2].map(|places| places * head_bytes);
    let mut parts = sizes.map(|size| vec![0xff; size]);
    for (rank, part) in parts.iter_mut().enumerate() {
        map.scatter(shape, rank, &page, part);
    }
    assert_eq!(parts[0], heads(&[0, 1, 10, 11]));
    assert_eq!(parts[2], heads(&[1, 1, 2, 11, 11, 12]));
    assert_eq!(parts[3], heads(&[3, 13]));

    let parts = [Some(&*parts[0]), None, Some(&*parts[2]), Some(&*parts[3])];
    let mut gathered = vec![7];
    map.gather(shape, &parts, &mut gathered);
    assert_eq!(gathered[0], 7, "appended");
    assert_eq!(gathered[1..], page);
}
