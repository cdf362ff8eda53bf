// Groups D and E: pausing, forking and snapshots through the JavaScript client. Creates machines of its own.
import assert from 'node:assert/strict'
import { Sandbox, NotFoundError } from 'e2b'
import { machineLine, options } from './place.mjs'

const patient = { ...options, requestTimeoutMs: 110_000 }

async function withSandbox(body) {
    const made = await Sandbox.create({ ...patient, timeoutMs: 600_000, envs: { FOO: 'bar' } })
    try {
        await body(made)
    } finally {
        await made.kill()
    }
}

machineLine('D01 D02 D15 D24', 'a pause keeps everything', () =>
    withSandbox(async (made) => {
        await made.commands.run('echo kept > /dev/shm/kept')
        assert.equal(await made.pause(patient), true)
        assert.equal(await made.isRunning(), false)
        assert.equal(await made.pause(patient), false)
        assert.equal((await made.getInfo()).state, 'paused')
        const again = await Sandbox.connect(made.sandboxId, patient)
        assert.equal((await again.commands.run('cat /dev/shm/kept; echo $FOO')).stdout, 'kept\nbar\n')
    }),
)

machineLine('E01 E02 E03 E06', 'children share the past and nothing else', () =>
    withSandbox(async (made) => {
        await made.files.write('past', 'before')
        const children = await made.fork({ ...patient, count: 2, timeoutMs: 600_000 })
        try {
            assert.equal(new Set([made, ...children].map((one) => one.sandboxId)).size, 3)
            for (const child of children) {
                assert.equal(await child.files.read('past'), 'before')
                await child.files.write('past', child.sandboxId)
            }
            assert.equal(await made.files.read('past'), 'before')
        } finally {
            for (const child of children) await child.kill()
        }
    }),
)

machineLine('E14 E15 E17 E18 B20', 'a snapshot is taken, started, listed and deleted', () =>
    withSandbox(async (made) => {
        await made.files.write('past', 'before')
        const taken = await made.createSnapshot(patient)
        assert.equal(await made.isRunning(), true)
        const page = await Sandbox.listSnapshots({ ...options, sandboxId: made.sandboxId }).nextItems()
        assert.deepEqual(page.map((one) => one.snapshotId), [taken.snapshotId])
        const from = await Sandbox.create(taken.snapshotId, { ...patient, timeoutMs: 600_000 })
        try {
            assert.equal(await from.files.read('past'), 'before')
        } finally {
            await from.kill()
        }
        assert.equal(await Sandbox.deleteSnapshot(taken.snapshotId, options), true)
        assert.equal(await Sandbox.deleteSnapshot(taken.snapshotId, options), false)
    }),
)

machineLine('D05 E04', 'what is gone can be neither resumed nor forked', async () => {
    await assert.rejects(Sandbox.connect('nonexistingsandbox', options), NotFoundError)
    await assert.rejects(Sandbox.fork('nonexistingsandbox', options), NotFoundError)
})
